"""The whole inquest: screen with a tournament, question the suspects with known-good partners, then name the culprits.

Nothing is accused on one look: what the first pass suspects, a second pass measures again, with other partners and more
repeats, beside controls. What it cannot tell apart it does not name.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seatrial.accept.blame.bouts import Bouts, Cluster, Floats, PortCounters
from seatrial.accept.blame.decode import (
    LOW,
    Polished,
    flickering_ports,
    grouped_median,
    low_parts,
    low_paths,
    low_ports,
    polish,
    shared_lows,
    steady_or_flapping,
)
from seatrial.accept.blame.plan import Round, confirmations, tournament
from seatrial.accept.fleet import ROBUST_Z
from seatrial.accept.limits import FAIL_SHARE
from seatrial.records import Frozen

Kind = Literal["bad GPU", "bad NIC", "bad cable", "bad rail", "flapping link", "slow node", "bad path"]

SCREEN_REPEATS = 3
PARTNERS = 10
CONFIRM_REPEATS = 12
PATH_ROUNDS = 4
COMPUTE_REPEATS = 5
WHOLE_NODE_SHARE = 0.5
"""Of its ports or GPUs: when so many are slow, what they share is the culprit."""


class Culprit(Frozen):
    """``part`` is what to replace or look at: ``gpu 3``, ``nic 3``, ``rail 3`` (cable and switch port), ``node``,
    ``rail 3 to node 7``. ``loss``: the share of the healthy rate that is missing."""

    kind: Kind
    node: int
    part: str
    loss: float
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Inquest:
    """``unsettled`` says what was suspected and could not be settled. ``rate_NN``: median over the first pass by pair,
    in GB/s, NaN where two nodes did not meet. ``centre_L``: the healthy rate of each rail."""

    culprits: tuple[Culprit, ...]
    unsettled: tuple[str, ...]
    rate_NN: Floats
    centre_L: Floats
    rounds: int


@dataclass
class _Docket:
    """Findings by node, while they are collected."""

    low_ports: dict[tuple[int, int], float] = field(default_factory=dict)
    flapping: dict[tuple[int, int], float] = field(default_factory=dict)
    paths: dict[tuple[int, int, int], float] = field(default_factory=dict)
    low_gpus: dict[tuple[int, int], float] = field(default_factory=dict)
    unsettled: list[str] = field(default_factory=list)


def investigate(cluster: Cluster, seed: int = 0) -> Inquest:
    """Find the culprits among the nodes of a cluster, in one pass that screens and one that confirms."""
    rounds = tournament(range(cluster.nodes), seed)
    before = cluster.counters()
    screened = Bouts.joined([cluster.play(turn, round_, SCREEN_REPEATS) for turn, round_ in enumerate(rounds)])
    polished = polish(screened, cluster.nodes, cluster.rails)
    docket = _Docket()
    ports, paths = _suspects(screened, polished)
    played, polished = _confirm_ports(cluster, ports, paths, screened, polished, docket)
    played = _confirm_paths(cluster, paths, polished, played, docket)
    compute_NG = _confirm_gpus(cluster, docket) if cluster.gpus else np.empty((cluster.nodes, 0))
    loopback_NL = np.median(cluster.loopback(COMPUTE_REPEATS), axis=-1)
    culprits = _name(cluster, docket, loopback_NL, _grown(before, cluster.counters()), compute_NG)
    centre_L = np.exp(polished.centre_L)
    return Inquest(tuple(culprits), tuple(docket.unsettled), _by_pair(screened, cluster.nodes), centre_L, played)


def _suspects(bouts: Bouts, polished: Polished) -> tuple[set[tuple[int, int]], set[tuple[int, int, int]]]:
    """Ports worth a second look, and paths between ports that are none."""
    suspected_NL = low_ports(polished) | flickering_ports(bouts, polished)
    ports = {(int(node), int(rail)) for node, rail in np.argwhere(suspected_NL)}
    steady = {(int(node), int(rail)) for node, rail in np.argwhere(low_ports(polished))}
    paths = {
        (a, b, rail) for a, b, rail in low_paths(bouts, polished) if (a, rail) not in steady and (b, rail) not in steady
    }
    return ports, paths


def _centred_on_sound_nodes(bouts: Bouts, polished: Polished, suspects: set[int]) -> Polished:
    """The healthy rate of a rail is that between nodes that nobody suspects: on few nodes, half may be at fault."""
    suspected = np.array(sorted(suspects), dtype=np.int64)
    sound_M = ~(np.isin(bouts.a_M, suspected) | np.isin(bouts.b_M, suspected))
    log_M = np.log(np.maximum(bouts.rate_M[sound_M], 1e-9))
    rail_M, rails = bouts.rail_M[sound_M], len(polished.centre_L)
    centre_L = grouped_median(rail_M, log_M, rails)
    spread_L = grouped_median(rail_M, np.abs(log_M - centre_L[rail_M]), rails)
    return replace(
        polished,
        centre_L=np.where(np.isfinite(centre_L), centre_L, polished.centre_L),
        margin_L=np.maximum(-LOW, ROBUST_Z / 0.6745 * np.nan_to_num(spread_L)),
    )


def _confirm_ports(
    cluster: Cluster,
    ports: set[tuple[int, int]],
    paths: set[tuple[int, int, int]],
    screened: Bouts,
    polished: Polished,
    docket: _Docket,
) -> tuple[int, Polished]:
    """Every suspect meets known-good nodes. Returns the number of rounds that have been played, and what is healthy by
    all bouts between nodes that nobody suspects: those of the first pass, and the controls of this one."""
    played = int(screened.turn_M.max(initial=-1)) + 1
    nodes = sorted({node for node, _ in ports})
    doubtful = {node for a, b, _ in paths for node in (a, b)}
    good = [node for node in range(cluster.nodes) if node not in nodes]
    # Nodes of suspected paths are the last to be trusted, but on few nodes there is no choice.
    good.sort(key=lambda node: node in doubtful)
    if len(good) < 2 and nodes:
        docket.unsettled.append(f"nodes {nodes} are suspected, and too few others are left to tell who is right")
        return played, _centred_on_sound_nodes(screened, polished, set(nodes))
    partners = [node for node in good if node not in doubtful]
    partners = partners if len(partners) >= PARTNERS else good
    seen = []
    # Few nodes have few partners: then they meet each of them more often.
    again = -(-PARTNERS // max(1, min(PARTNERS, len(partners)))) if nodes else 0
    for plan in confirmations(nodes, partners, PARTNERS) * again:
        seen.append(cluster.play(played, plan.round, CONFIRM_REPEATS))
        played += 1
    bouts = Bouts.joined(seen)
    polished = _centred_on_sound_nodes(Bouts.joined([screened, bouts]), polished, set(nodes))
    shared_M = _shared(cluster, bouts, polished)
    for node, rail in sorted(ports):
        centre = float(np.exp(polished.centre_L[rail]))
        own_M = ((bouts.a_M == node) | (bouts.b_M == node)) & (bouts.rail_M == rail)
        own = bouts.where(own_M)
        loss = float(1 - np.median(np.nan_to_num(own.rate_M)) / centre) if len(own.rate_M) else 0.0
        match steady_or_flapping(own, centre, float(polished.margin_L[rail]), shared_M[own_M]):
            case "steady":
                docket.low_ports[node, rail] = loss
            case "flapping":
                low_M = ~(own.rate_M > centre * np.exp(-polished.margin_L[rail]))
                docket.flapping[node, rail] = float(low_M.mean())
    return played, polished


def _shared(cluster: Cluster, bouts: Bouts, polished: Polished) -> NDArray[np.bool_]:
    low_M = ~(bouts.rate_M > np.exp(polished.centre_L - polished.margin_L)[bouts.rail_M])
    return shared_lows(bouts, low_M, cluster.nodes, cluster.rails)


def _confirm_paths(
    cluster: Cluster, paths: set[tuple[int, int, int]], polished: Polished, played: int, docket: _Docket
) -> int:
    """The two ends of a slow path meet again, some rounds apart: what was congestion is gone."""
    left = {path for path in paths if not any((node, path[2]) in docket.low_ports for node in path[:2])}
    left = {path for path in left if not any((node, path[2]) in docket.flapping for node in path[:2])}
    seen = []
    for round_ in _disjoint({(a, b) for a, b, _ in left}):
        for _ in range(PATH_ROUNDS):
            seen.append(cluster.play(played, round_, CONFIRM_REPEATS))
            played += 1
    bouts = Bouts.joined(seen)
    shared_M = _shared(cluster, bouts, polished)
    for a, b, rail in sorted(left):
        chosen_M = (bouts.a_M == a) & (bouts.b_M == b) & (bouts.rail_M == rail)
        rate_M = bouts.rate_M[chosen_M]
        ends = polished.effect_NL[a, rail] + polished.effect_NL[b, rail]
        centre = float(np.exp(polished.centre_L[rail] + ends))
        found = steady_or_flapping(bouts.where(chosen_M), centre, float(polished.margin_L[rail]), shared_M[chosen_M])
        if found == "steady":
            docket.paths[a, b, rail] = float(1 - np.median(np.nan_to_num(rate_M)) / centre)
    return played


def _disjoint(pairs: Iterable[tuple[int, int]]) -> list[Round]:
    """Rounds in which no node plays twice, first come first served."""
    rounds: list[dict[int, tuple[int, int]]] = []
    for pair in sorted(pairs):
        free = next((round_ for round_ in rounds if not (pair[0] in round_ or pair[1] in round_)), None)
        if free is None:
            rounds.append(free := {})
        free[pair[0]] = free[pair[1]] = pair
    return [tuple(sorted(set(round_.values()))) for round_ in rounds]


def _confirm_gpus(cluster: Cluster, docket: _Docket) -> Floats:
    """GPUs that are slow in two of three looks. Returns the median rate_NG of the last look."""
    looks = [cluster.compute(COMPUTE_REPEATS) for _ in range(3)]
    low_KNG: NDArray[np.bool_] = np.stack([low_parts(look) for look in looks])
    last_NG: Floats = np.median(looks[-1], axis=-1)
    centre = float(np.nanmedian(last_NG))
    for node, gpu in np.argwhere(low_KNG.sum(axis=0) >= 2):
        docket.low_gpus[int(node), int(gpu)] = float(1 - last_NG[node, gpu] / centre)
    return last_NG


def _grown(before: PortCounters, after: PortCounters) -> PortCounters:
    return PortCounters(after.symbol_errors_NL - before.symbol_errors_NL, after.link_downs_NL - before.link_downs_NL)


def _name(
    cluster: Cluster, docket: _Docket, loopback_NL: Floats, grown: PortCounters, compute_NG: Floats
) -> list[Culprit]:
    """From slow ports and GPUs to the one part that explains them."""
    whole = _whole_nodes(cluster, docket)
    culprits = [_node(cluster, docket, node, loss) for node, loss in sorted(whole.items())]
    for (node, gpu), loss in sorted(docket.low_gpus.items()):
        if node not in whole:
            told = f"computes {loss:.0%} less than the median of {compute_NG.size} GPUs, in two of three looks"
            culprits.append(Culprit(kind="bad GPU", node=node, part=f"gpu {gpu}", loss=loss, evidence=(told,)))
    for (node, rail), loss in sorted(docket.low_ports.items()):
        if node not in whole:
            culprits.append(_port(node, rail, loss, loopback_NL, grown))
    for (node, rail), share in sorted(docket.flapping.items()):
        if node not in whole:
            told = f"slow in {share:.0%} of the measurements with known-good partners, and sound in the others"
            downs = f"the port counted {grown.link_downs_NL[node, rail]} more times that the link went down"
            part = f"rail {rail}"
            culprits.append(Culprit(kind="flapping link", node=node, part=part, loss=share, evidence=(told, downs)))
    for (a, b, rail), loss in sorted(docket.paths.items()):
        told = f"{loss:.0%} slower between these two, in {PATH_ROUNDS + 1} rounds; both are sound with other partners"
        part = f"rail {rail} to node {b}"
        culprits.append(Culprit(kind="bad path", node=a, part=part, loss=loss, evidence=(told,)))
    return culprits


def _node(cluster: Cluster, docket: _Docket, node: int, loss: float) -> Culprit:
    ports = sum(at == node for at, _ in docket.low_ports)
    gpus = sum(at == node for at, _ in docket.low_gpus)
    told = f"{ports} of {cluster.rails} ports and {gpus} of {cluster.gpus} GPUs are slow with every partner"
    return Culprit(kind="slow node", node=node, part="node", loss=loss, evidence=(told,))


def _whole_nodes(cluster: Cluster, docket: _Docket) -> dict[int, float]:
    """Nodes of which most ports, or most GPUs, are slow. Of a single port or GPU nothing can be said of the others."""
    found: dict[int, float] = {}
    for lows, parts in ((docket.low_ports, cluster.rails), (docket.low_gpus, cluster.gpus)):
        for node in {node for node, _ in lows}:
            losses = [loss for (at, _), loss in lows.items() if at == node]
            if parts > 1 and len(losses) > WHOLE_NODE_SHARE * parts:
                found[node] = max(found.get(node, 0.0), float(np.median(losses)))
    return found


def _port(node: int, rail: int, loss: float, loopback_NL: Floats, grown: PortCounters) -> Culprit:
    """A port that is slow even to itself is a bad NIC; one that is not has a bad cable, or switch port."""
    own, healthy = float(loopback_NL[node, rail]), loopback_NL[:, rail]
    errors = int(grown.symbol_errors_NL[node, rail])
    slow = f"{loss:.0%} slower than the rail, with every partner"
    counted = f"the port counted {errors} more symbol errors"
    kind: Kind = "bad rail"
    part, alone = f"rail {rail}", "the port could not be measured without its cable"
    if np.isfinite(own) and np.isfinite(healthy).any():
        centre = float(np.nanmedian(healthy))
        alone = f"to itself, without the cable, the port carries {own:.3g} GB/s of {centre:.3g}"
        kind = "bad NIC" if own < FAIL_SHARE * centre else "bad cable"
        part = f"nic {rail}" if kind == "bad NIC" else part
    return Culprit(kind=kind, node=node, part=part, loss=loss, evidence=(slow, alone, counted))


def _by_pair(bouts: Bouts, nodes: int) -> Floats:
    rate_NN = np.full((nodes, nodes), np.nan)
    keys_K, dense_M = np.unique(bouts.a_M * nodes + bouts.b_M, return_inverse=True)
    for index, key in enumerate(keys_K):
        a, b = divmod(int(key), nodes)
        rate_NN[a, b] = rate_NN[b, a] = np.median(np.nan_to_num(bouts.rate_M[dense_M == index]))
    return rate_NN
