"""The whole inquest: screen with a tournament, question the suspects with known-good partners, then name the culprits.

Nothing is accused on one look: what the first pass suspects, a second pass measures again, with other partners and more
repeats, beside controls. What it cannot tell apart it does not name.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from seatrial.accept.blame.bouts import Bouts, Cluster, Floats, PortCounters
from seatrial.accept.blame.decode import (
    Finding,
    Mask,
    Polished,
    flickering_ports,
    grouped_median,
    judge_beside_controls,
    low_parts,
    low_paths,
    low_ports,
    low_rails,
    polish,
    shared_lows,
    within_bouts,
    worst_ports,
)
from seatrial.accept.blame.plan import Round, confirmations, tournament
from seatrial.accept.limits import FAIL_SHARE
from seatrial.records import Frozen

Kind = Literal["bad GPU", "bad NIC", "bad cable", "bad rail", "flapping link", "slow node", "bad path"]

SCREEN_ROUNDS = 12
"""At least: few nodes meet again and again, or a link that flaps goes unseen."""
SCREEN_REPEATS = 3
LEAST_GOOD = 2
"""Nodes of a rail that play the known-good ones, however suspicious all are: two, since controls need a pair."""
PARTNERS = 10
FEW_NODES_BOUTS = 20
"""Of every node in the second pass, where good nodes are few: so are controls, and more rounds must tell."""
CONFIRM_REPEATS = 12
PATH_ROUNDS = 6
RAIL_ROUNDS = 8
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
    """``slow_rails``: what share of the others' rate a rail lacks between all nodes alike, so that no node is to blame.
    ``rate_NN``: median over the first pass by pair, in GB/s, NaN where two nodes did not meet."""

    culprits: tuple[Culprit, ...]
    slow_rails: dict[int, float]
    rate_NN: Floats
    rounds: int


@dataclass
class _Docket:
    """Findings by node, while they are collected."""

    low_ports: dict[tuple[int, int], float] = field(default_factory=dict)
    flapping: dict[tuple[int, int], float] = field(default_factory=dict)
    paths: dict[tuple[int, int, int], float] = field(default_factory=dict)
    slow_rails: dict[int, float] = field(default_factory=dict)
    low_gpus: dict[tuple[int, int], float] = field(default_factory=dict)


def investigate(cluster: Cluster, seed: int = 0) -> Inquest:
    """Find the culprits among the nodes of a cluster, in one pass that screens and one that confirms."""
    rounds = tournament(range(cluster.nodes), seed)
    rounds *= -(-SCREEN_ROUNDS // max(len(rounds), 1))
    before = cluster.counters()
    screened = _play(cluster, 0, rounds, SCREEN_REPEATS)
    polished = polish(screened, cluster.nodes, cluster.rails)
    docket = _Docket()
    ports, paths = _suspects(screened, polished)
    played = _confirm_ports(cluster, ports, paths, len(rounds), docket)
    played = _confirm_paths(cluster, paths, played, docket)
    played = _confirm_rails(cluster, low_rails(_between_unsuspected(screened, ports)), ports, played, docket)
    compute_NG = _confirm_gpus(cluster, docket) if cluster.gpus else np.empty((cluster.nodes, 0))
    loopback_NL = np.median(cluster.loopback(COMPUTE_REPEATS), axis=-1)
    culprits = _name(cluster, docket, loopback_NL, _grown(before, cluster.counters()), compute_NG)
    rate_NN = _by_pair(screened, cluster.nodes)
    slow_rails = docket.slow_rails if cluster.nodes > 2 else {}
    return Inquest(tuple(culprits), slow_rails, rate_NN, played)


def _play(cluster: Cluster, first: int, rounds: Sequence[Round], repeats: int) -> Bouts:
    """One round after another, of which the first is counted as turn ``first``."""
    return Bouts.joined([cluster.play(turn, round_, repeats) for turn, round_ in enumerate(rounds, first)])


def _suspects(bouts: Bouts, polished: Polished) -> tuple[set[tuple[int, int]], set[tuple[int, int, int]]]:
    """Ports worth a second look, and paths between ports that are none. Of two nodes nobody can tell which is slow."""
    if polished.effect_NL.shape[0] == 2:
        return set(), set()
    suspected_NL = worst_ports(low_ports(polished) | flickering_ports(bouts, polished), bouts, LEAST_GOOD)
    ports = {(int(node), int(rail)) for node, rail in np.argwhere(suspected_NL)}
    steady = {(int(node), int(rail)) for node, rail in np.argwhere(low_ports(polished))}
    paths = {
        (a, b, rail) for a, b, rail in low_paths(bouts, polished) if (a, rail) not in steady and (b, rail) not in steady
    }
    return ports, paths


def _confirm_ports(
    cluster: Cluster,
    ports: set[tuple[int, int]],
    paths: set[tuple[int, int, int]],
    played: int,
    docket: _Docket,
) -> int:
    """Every suspect meets known-good nodes, while others of these meet each other. Returns the rounds played so far."""
    suspects_L = [[node for node, rail in ports if rail == at] for at in range(cluster.rails)]
    rounds = _beside_known_good(cluster.nodes, ports, paths)
    bouts = _play(cluster, played, rounds, CONFIRM_REPEATS)
    shared_M = _shared(cluster, bouts)
    for node, rail in sorted(ports):
        rail_M = bouts.rail_M == rail
        a_suspected_M, b_suspected_M = (np.isin(side_M, suspects_L[rail]) for side_M in (bouts.a_M, bouts.b_M))
        own_M = ((bouts.a_M == node) & ~b_suspected_M) | ((bouts.b_M == node) & ~a_suspected_M)
        control_M = ~a_suspected_M & ~b_suspected_M
        found = _beside_controls(bouts, shared_M, own_M & rail_M, control_M & rail_M)
        match found.kind:
            case "steady":
                docket.low_ports[node, rail] = found.loss
            case "flapping":
                docket.flapping[node, rail] = found.low_share
    return played + len(rounds)


def _beside_known_good(nodes: int, ports: set[tuple[int, int]], paths: set[tuple[int, int, int]]) -> tuple[Round, ...]:
    """The rounds of the second pass: suspects with nodes that nobody suspects, as long as there are enough. On fewer
    everybody meets everybody again and again, and each rail tells by itself who is sound on it."""
    suspects = sorted({node for node, _ in ports})
    if not suspects:
        return ()
    doubtful = {node for a, b, _ in paths for node in (a, b)}
    good = [node for node in range(nodes) if node not in suspects]
    trusted = [node for node in good if node not in doubtful]
    partners = trusted if len(trusted) >= PARTNERS else good
    if len(partners) >= PARTNERS:
        return tuple(plan.round for plan in confirmations(suspects, partners, PARTNERS))
    meetings = tournament(range(nodes))
    return meetings * -(-FEW_NODES_BOUTS // (nodes - 1))


def _confirm_paths(cluster: Cluster, paths: set[tuple[int, int, int]], played: int, docket: _Docket) -> int:
    """The two ends of a slow path meet again, and others in between, some rounds apart: what was congestion is gone.
    Returns the rounds played so far."""
    at_fault = docket.low_ports.keys() | docket.flapping.keys()
    left = sorted((a, b, rail) for a, b, rail in paths if not {(a, rail), (b, rail)} & at_fault)
    doubtful = {node for a, b, _ in left for node in (a, b)} | {node for node, _ in at_fault}
    trusted = [node for node in range(cluster.nodes) if node not in doubtful]
    trusted = trusted if len(trusted) >= LEAST_GOOD else list(range(cluster.nodes))
    pairs = {(a, b) for a, b, _ in left}
    controls = {pair for number, ends in enumerate(sorted(pairs)) for pair in _with_others(ends, trusted, number)}
    rounds = [*_disjoint(pairs), *_disjoint(controls)] * PATH_ROUNDS
    bouts = _play(cluster, played, rounds, CONFIRM_REPEATS)
    shared_M = _shared(cluster, bouts)
    for a, b, rail in left:
        rail_M = bouts.rail_M == rail
        own_M = (bouts.a_M == a) & (bouts.b_M == b)
        ends_M = np.isin(bouts.a_M, (a, b)) | np.isin(bouts.b_M, (a, b))
        found = _beside_controls(bouts, shared_M, own_M & rail_M, ends_M & ~own_M & rail_M)
        if found.kind == "steady":
            docket.paths[a, b, rail] = found.loss
    return played + len(rounds)


def _with_others(ends: tuple[int, int], trusted: Sequence[int], number: int) -> list[tuple[int, int]]:
    """Each end of a path with another node, so that many paths have their controls in the same round."""
    others = [node for node in trusted if node not in ends]
    partners = [others[(2 * number + side) % len(others)] for side in range(2)]
    return [(min(pair), max(pair)) for pair in zip(ends, partners, strict=True)]


def _between_unsuspected(bouts: Bouts, ports: set[tuple[int, int]]) -> Bouts:
    rails = int(bouts.rail_M.max(initial=0)) + 1
    ports_K = np.array(sorted(node * rails + rail for node, rail in ports), dtype=np.int64)
    a_M, b_M = bouts.a_M * rails + bouts.rail_M, bouts.b_M * rails + bouts.rail_M
    return bouts.where(~np.isin(a_M, ports_K) & ~np.isin(b_M, ports_K))


def _confirm_rails(
    cluster: Cluster, rails: Sequence[int], ports: set[tuple[int, int]], played: int, docket: _Docket
) -> int:
    """All nodes meet again, and a slow rail is held against the others of the same bouts: congestion would slow all of
    them. Returns the rounds played so far."""
    if not rails:
        return played
    meetings = tournament(range(cluster.nodes))
    rounds = (meetings * RAIL_ROUNDS)[:RAIL_ROUNDS]
    bouts = within_bouts(_between_unsuspected(_play(cluster, played, rounds, CONFIRM_REPEATS), ports))
    for rail in rails:
        own_M = bouts.rail_M == rail
        found = _beside_controls(bouts, np.zeros_like(own_M), own_M, ~np.isin(bouts.rail_M, rails))
        if found.kind == "steady":
            docket.slow_rails[rail] = found.loss
    return played + len(rounds)


def _shared(cluster: Cluster, bouts: Bouts) -> Mask:
    """shared_M of a second pass, in which nearly all are sound: low is what is 7 % below the median of its rail."""
    centre_L = grouped_median(bouts.rail_M, bouts.rate_M, cluster.rails)
    low_M = ~(bouts.rate_M > FAIL_SHARE * centre_L[bouts.rail_M])
    return shared_lows(bouts, low_M, cluster.rails)


def _beside_controls(bouts: Bouts, shared_M: Mask, own_M: Mask, control_M: Mask) -> Finding:
    return judge_beside_controls(bouts.where(own_M), shared_M[own_M], bouts.where(control_M), shared_M[control_M])


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
    low_KNG: Mask = np.stack([low_parts(look) for look in looks])
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
    if cluster.nodes == 2:
        for rail, loss in sorted(docket.slow_rails.items()):
            told = f"{loss:.0%} slower than the other rails between these two, in {SCREEN_ROUNDS + RAIL_ROUNDS} rounds"
            ends = "which end it is takes a third node, or this cable in another port"
            part = f"rail {rail} to node 1"
            culprits.append(Culprit(kind="bad path", node=0, part=part, loss=loss, evidence=(told, ends)))
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
