"""A cluster that exists only here, with faults of our choice and the noise of real ones, to prove the inquest on.

Noise, one after another: boards differ by 1.5 % and ports by 0.4 %; paths by 1 %, and by 1.5 % more through the spine;
single measurements by 1.2 %; 1.5 % of them meet congestion that takes up to 60 %; and now and then a burst slows all of
a pod for a round. Faults are from 12 % upwards: a limit allows 7 %.
"""

from collections.abc import Sequence

import numpy as np

from seatrial.accept.blame.bouts import Bouts, Floats, PortCounters
from seatrial.accept.blame.inquest import Inquest, Kind
from seatrial.accept.blame.plan import Round
from seatrial.records import Frozen, JsonObject

KINDS: tuple[Kind, ...] = ("bad GPU", "bad NIC", "bad cable", "slow node", "flapping link")
"""Those that are drawn. A bad path is simulated too, but found only where its two ends meet."""
POD = 32
"""Nodes under the same leaf switches; between pods the way goes through the spine."""
PORT_GB_PER_S = 47.0
COMPUTE = 680.0


class Fault(Frozen):
    """``strength``: what is left of the healthy rate; of a flapping link, the share of measurements that it spoils."""

    kind: Kind
    node: int
    part: str
    strength: float


def draw_faults(nodes: int, gpus: int, rails: int, count: int, seed: int) -> tuple[Fault, ...]:
    """One fault a node, of each kind in turn."""
    draw = np.random.default_rng([seed, 1])
    chosen = [int(node) for node in draw.permutation(nodes)[:count]]
    faults = []
    for index, node in enumerate(chosen):
        kind = KINDS[index % len(KINDS)]
        strength = float(draw.uniform(0.3, 0.88))
        match kind:
            case "bad GPU":
                part, strength = f"gpu {draw.integers(gpus)}", max(strength, 0.5)
            case "bad NIC":
                part = f"nic {draw.integers(rails)}"
            case "slow node":
                part, strength = "node", max(strength, 0.5)
            case "flapping link":
                part, strength = f"rail {draw.integers(rails)}", float(draw.uniform(0.25, 0.6))
            case _:
                part = f"rail {draw.integers(rails)}"
        faults.append(Fault(kind=kind, node=node, part=part, strength=strength))
    return tuple(faults)


class SimulatedCluster:
    """``nodes`` with ``gpus`` GPUs and ``rails`` ports each, and these faults. The same seed gives the same noise."""

    def __init__(self, nodes: int, gpus: int, rails: int, faults: Sequence[Fault], seed: int) -> None:
        self.nodes, self.gpus, self.rails = nodes, gpus, rails
        self._draw = np.random.default_rng([seed, 2])
        normal = self._draw.normal
        self._compute_NG = COMPUTE * (1 + normal(0, 0.015, (nodes, gpus)))
        self._port_NL = PORT_GB_PER_S * (1 + normal(0, 0.004, (nodes, rails)))
        self._loopback_NL = PORT_GB_PER_S * (1 + normal(0, 0.004, (nodes, rails)))
        pod_N = np.arange(nodes) // POD
        spine_NN = np.where(pod_N[:, None] == pod_N[None, :], 1.0, 0.985)
        self._path_NN = spine_NN * (1 + np.abs(normal(0, 0.01, (nodes, nodes))) * -1)
        self._slow_paths: dict[tuple[int, int, int], float] = {}
        self._flaps: dict[tuple[int, int], float] = {}
        self._symbol_errors_NL = np.zeros((nodes, rails), dtype=np.int64)
        self._link_downs_NL = np.zeros((nodes, rails), dtype=np.int64)
        self._cables: set[tuple[int, int]] = set()
        for fault in faults:
            self._break(fault)

    def _break(self, fault: Fault) -> None:
        number = int(fault.part.split()[1]) if fault.part != "node" else 0
        node, left = fault.node, fault.strength
        match fault.kind:
            case "bad GPU":
                self._compute_NG[node, number] *= left
            case "bad NIC":
                self._port_NL[node, number] *= left
                self._loopback_NL[node, number] *= left
            case "bad cable":
                self._port_NL[node, number] *= left
                self._cables.add((node, number))
            case "slow node":
                self._compute_NG[node] *= left
                self._port_NL[node] *= left
                self._loopback_NL[node] *= left
            case "flapping link":
                self._flaps[node, number] = left
            case "bad path":
                other = int(fault.part.split()[-1])
                self._slow_paths[min(node, other), max(node, other), number] = left
            case _:
                raise ValueError(f"{fault.kind} is not simulated")

    def play(self, turn: int, round_: Round, repeats: int) -> Bouts:
        a_P, b_P = np.asarray(round_, dtype=np.int64).reshape(-1, 2).T
        shape = (len(round_), self.rails, repeats)
        rate_PLR = np.minimum(self._port_NL[a_P], self._port_NL[b_P])[:, :, None] * self._noise(shape, 0.012)
        rate_PLR = rate_PLR * self._path_NN[np.minimum(a_P, b_P), np.maximum(a_P, b_P)][:, None, None]
        congested_PLR = self._draw.random(shape) < 0.015
        rate_PLR = np.where(congested_PLR, rate_PLR * self._draw.uniform(0.4, 0.95, shape), rate_PLR)
        burst_pods = np.flatnonzero(self._draw.random(-(-self.nodes // POD)) < 0.03)
        slowed_P = np.isin(a_P // POD, burst_pods) | np.isin(b_P // POD, burst_pods)
        rate_PLR[slowed_P] *= self._draw.uniform(0.7, 0.95)
        self._spoil(rate_PLR, a_P.tolist(), b_P.tolist())
        return Bouts.of_round(turn, round_, rate_PLR)

    def _spoil(self, rate_PLR: Floats, a_P: Sequence[int], b_P: Sequence[int]) -> None:
        """What depends on the pair, or on the moment."""
        repeats = rate_PLR.shape[2]
        for pair, (a, b) in enumerate(zip(a_P, b_P, strict=True)):
            for rail in range(self.rails):
                rate_PLR[pair, rail] *= self._slow_paths.get((min(a, b), max(a, b), rail), 1.0)
                for node in (a, b):
                    if (node, rail) in self._cables:
                        self._symbol_errors_NL[node, rail] += self._draw.poisson(20)
                    if share := self._flaps.get((node, rail)):
                        down_R = self._draw.random(repeats) < share
                        rate_PLR[pair, rail, down_R] *= self._draw.uniform(0.05, 0.4)
                        self._link_downs_NL[node, rail] += int(np.any(down_R))

    def compute(self, repeats: int) -> Floats:
        shape = (self.nodes, self.gpus, repeats)
        return self._compute_NG[:, :, None] * self._noise(shape, 0.006)

    def loopback(self, repeats: int) -> Floats:
        return self._loopback_NL[:, :, None] * self._noise((self.nodes, self.rails, repeats), 0.008)

    def counters(self) -> PortCounters:
        return PortCounters(self._symbol_errors_NL.copy(), self._link_downs_NL.copy())

    def _noise(self, shape: tuple[int, ...], spread: float) -> Floats:
        noise: Floats = np.exp(self._draw.normal(0, spread, shape))
        return noise


def compared(faults: Sequence[Fault], inquest: Inquest) -> JsonObject:
    """What was put in and what came out, as equal lists of ``{kind, node, part}`` when all is decoded."""
    return {
        "injected": sorted((_plain(fault.kind, fault.node, fault.part) for fault in faults), key=_order),
        "found": sorted((_plain(one.kind, one.node, one.part) for one in inquest.culprits), key=_order),
    }


def _plain(kind: str, node: int, part: str) -> JsonObject:
    """A path has two ends, of which the lower comes first."""
    if kind == "bad path":
        words = part.split()
        node, other = sorted((node, int(words[-1])))
        part = " ".join([*words[:-1], str(other)])
    return {"kind": kind, "node": node, "part": part}


def _order(found: JsonObject) -> tuple[int, str, str]:
    return found["node"], found["kind"], found["part"]
