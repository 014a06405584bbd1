"""What lies between nodes: questions, the facts that node 0 gathers, and their pure judges."""

from collections import Counter
from collections.abc import Mapping
from typing import NoReturn

from seatrial.accept.blame.inquest import Culprit
from seatrial.accept.check import (
    MIN_SAMPLES,
    AnyCheck,
    Check,
    Finding,
    Judgement,
    Request,
    conclude,
    judge_rate,
    measurement,
    percentile,
)
from seatrial.accept.checks.collectives import (
    RanksFacts,
    judge_results,
    judge_step,
    largest_of_each,
    step_measurements,
)
from seatrial.accept.facts import Facts
from seatrial.accept.fleet import stragglers
from seatrial.accept.gpu_kinds import kind_of
from seatrial.accept.limits import Limits
from seatrial.accept.nccl_log import NcclChoice, judge_networks
from seatrial.accept.training import limits as training_limits
from seatrial.accept.training.checks import late_ranks
from seatrial.accept.training.rate import Workload
from seatrial.acceptance import Part
from seatrial.records import CheckResult, Measurement, Verdict


class PresenceFacts(Facts):
    """``missing``: why, by node. ``present``: host names of the others."""

    nodes: int
    present: dict[int, str]
    missing: dict[int, str]


def judge_presence(facts: PresenceFacts, limits: Limits) -> Judgement:
    if len(facts.present) + len(facts.missing) != facts.nodes or not facts.nodes:
        return Judgement(Verdict.INCONCLUSIVE, f"{len(facts.present)} of {facts.nodes} nodes are accounted for")
    findings: list[Finding] = [(Verdict.FAIL, f"node {node} is missing: {why}") for node, why in facts.missing.items()]
    findings += [(Verdict.PASS, f"{len(facts.present)} nodes answered")] if facts.present else []
    where = f"{facts.nodes} nodes"
    count = Measurement(name="nodes", value=len(facts.present), unit="nodes", n=1, spread=0.0, where=where)
    return conclude(findings, [count])


class FingerprintFacts(Facts):
    """By host: what should be equal on all nodes, by name."""

    prints: dict[str, dict[str, str]]


GRAVE = frozenset({"GPUs", "driver", "torch", "NCCL", "seatrial"})
"""Nodes that differ in these compute differently or not together; the others are worth a look."""


def judge_fingerprints(facts: FingerprintFacts, limits: Limits) -> Judgement:
    """Majority vote: those that differ from what most nodes say are named."""
    if len(facts.prints) < 2:
        return Judgement(Verdict.INCONCLUSIVE, f"{len(facts.prints)} fingerprint(s): nothing to compare")
    findings: list[Finding] = []
    names = list(dict.fromkeys(name for found in facts.prints.values() for name in found))
    for name in names:
        votes = Counter(found.get(name, "nothing") for found in facts.prints.values())
        agreed, count = votes.most_common(1)[0]
        if len(votes) == 1:
            continue
        verdict = Verdict.FAIL if name in GRAVE else Verdict.WARN
        if count * 2 <= len(facts.prints):
            shown = ", ".join(f"{said} on {of}" for said, of in votes.most_common())
            findings.append((verdict, f"{name} differs and no majority says which is right: {shown}"))
            continue
        for host, found in facts.prints.items():
            if found.get(name, "nothing") != agreed:
                told = f"{host}: {name} is {found.get(name, 'nothing')}, but {agreed} on {count} of {len(facts.prints)}"
                findings.append((verdict, told))
    return conclude(findings or [(Verdict.PASS, f"{len(names)} properties equal on {len(facts.prints)} nodes")])


class NamesFacts(Facts):
    """By host: the names of other nodes that it could not resolve."""

    unresolved: dict[str, tuple[str, ...]]


def judge_names(facts: NamesFacts, limits: Limits) -> Judgement:
    """A name that nobody resolves is a fault of that name; a node that resolves none has a broken resolver."""
    hosts = len(facts.unresolved)
    if hosts < 2:
        return Judgement(Verdict.INCONCLUSIVE, f"{hosts} node(s) looked names up")
    missed = Counter(name for names in facts.unresolved.values() for name in names)
    findings: list[Finding] = []
    unknown = {name for name, count in missed.items() if count >= hosts - 1 > 1}
    findings += [(Verdict.FAIL, f"no other node resolves {name}: it is missing in DNS") for name in sorted(unknown)]
    for host, names in facts.unresolved.items():
        left = [name for name in names if name not in unknown]
        if left:
            findings.append((Verdict.FAIL, f"{host} cannot resolve {', '.join(left[:3])} ({len(left)} of {hosts - 1})"))
    return conclude(findings or [(Verdict.PASS, f"{hosts} nodes resolve each other's names")])


class ClocksFacts(Facts):
    """By host: (offset, half of the round trip) in seconds against node 0; the offset is no better known than that."""

    offsets: dict[str, tuple[float, float]]


SKEW_WARN_SECONDS, SKEW_FAIL_SECONDS = 0.1, 1.0
"""NTP keeps nodes of a cluster within milliseconds; from a second on, logs cannot be ordered, and file systems and
tokens that compare times fail."""


def judge_clocks(facts: ClocksFacts, limits: Limits) -> Judgement:
    if len(facts.offsets) < 2:
        return Judgement(Verdict.INCONCLUSIVE, f"{len(facts.offsets)} clock(s): nothing to compare")
    # Against the median, since node 0 may be the one that is wrong.
    centre = percentile([offset for offset, _ in facts.offsets.values()], 50)
    findings: list[Finding] = []
    worst = 0.0
    for host, (offset, uncertainty) in facts.offsets.items():
        skew = abs(offset - centre)
        worst = max(worst, skew)
        if uncertainty < 0:
            findings.append((Verdict.INCONCLUSIVE, f"{host}: an uncertainty of {uncertainty} s makes no sense"))
        elif skew - uncertainty > SKEW_FAIL_SECONDS:
            findings.append((Verdict.FAIL, f"{host}: its clock is {offset - centre:+.3g} s off the others"))
        elif skew - uncertainty > SKEW_WARN_SECONDS:
            findings.append((Verdict.WARN, f"{host}: its clock is {offset - centre:+.3g} s off the others"))
    number = Measurement(name="largest skew", value=worst, unit="s", n=len(facts.offsets), spread=0.0, where="cluster")
    return conclude(findings or [(Verdict.PASS, f"{len(facts.offsets)} clocks within {worst:.2g} s")], [number])


class FleetFacts(Facts):
    """By check and measurement, by kind of part: the median of each part of each node."""

    rates: dict[str, dict[str, float]]


def judge_fleet(facts: FleetFacts, limits: Limits) -> Judgement:
    if not facts.rates:
        return Judgement(Verdict.SKIPPED, "no check measured a rate")
    findings: list[Finding] = []
    for what, values in facts.rates.items():
        for where, lack in stragglers(values).items():
            findings.append((Verdict.WARN, f"{where}: {what} {lack:.1%} below the median of {len(values)} equals"))
    return conclude(findings or [(Verdict.PASS, f"no part of {len(facts.rates)} kinds falls behind its equals")])


class BlameFacts(Facts):
    """``hosts`` by index. ``wrong``: indices with which most partners got wrong sums; ``silent``: why, by index.

    ``slow_rails``: see :class:`seatrial.accept.blame.inquest.Inquest`. ``excluded``: hosts that did not play, since a
    rung before failed. ``at_scale``: what is slow only together.
    """

    hosts: tuple[str, ...]
    rounds: int
    culprits: tuple[Culprit, ...]
    slow_rails: dict[int, float]
    wrong: tuple[int, ...]
    silent: dict[int, str]
    excluded: dict[str, str]
    at_scale: str
    rates: tuple[tuple[float | None, ...], ...]


def judge_blame(facts: BlameFacts, limits: Limits) -> Judgement:
    if len(facts.hosts) < 2 or not facts.rounds:
        return Judgement(Verdict.INCONCLUSIVE, f"{facts.rounds} rounds between {len(facts.hosts)} node(s) tell nothing")
    findings: list[Finding] = [
        (Verdict.FAIL, f"{facts.hosts[node]}: its sums are wrong with most partners") for node in facts.wrong
    ]
    findings += [(Verdict.FAIL, f"{facts.hosts[node]}: {why}") for node, why in facts.silent.items()]
    for culprit in facts.culprits:
        if culprit.node not in facts.silent:
            evidence = "; ".join(culprit.evidence)
            findings.append((Verdict.FAIL, f"{facts.hosts[culprit.node]}, {culprit.part}: {culprit.kind}: {evidence}"))
    for rail, loss in facts.slow_rails.items():
        told = f"rail {rail} is {loss:.0%} slower than the others between all nodes: the switch or settings they share"
        findings.append((Verdict.WARN, told))
    findings += [(Verdict.FAIL, facts.at_scale)] if facts.at_scale else []
    met = [rate for row in facts.rates for rate in row if rate is not None]
    if not met and not findings:
        return Judgement(Verdict.INCONCLUSIVE, "no pair of nodes exchanged anything")
    numbers = [measurement("exchange of a pair", met, "GB/s", f"{len(facts.hosts)} nodes")] if met else []
    if not findings:
        text = f"{len(facts.hosts)} nodes, {facts.rounds} rounds: nobody is slower than the others, sums exact"
        findings.append((Verdict.PASS, text))
    findings += [(Verdict.SKIPPED, f"{host} did not play: {why}") for host, why in facts.excluded.items()]
    return conclude(findings, numbers)


class WholeFacts(Facts):
    """Collectives over all nodes that take part. ``by_host``: what NCCL chose on each, empty where ranks are on
    processors. ``rdma_gb_per_s``: line rates of each node's active ports, one direction."""

    ranks: RanksFacts
    nodes: int
    by_host: dict[str, NcclChoice]
    rdma_gb_per_s: dict[str, tuple[float, ...]]


def judge_whole(facts: WholeFacts, limits: Limits) -> Judgement:
    """Exact, by RDMA where there is RDMA, and at the rate of the links and ports where those are known."""
    if facts.nodes < 2:
        return Judgement(Verdict.INCONCLUSIVE, f"{facts.nodes} node(s) are no cluster")
    findings = judge_results(facts.ranks)
    kinds = {kind_of(name) for name in facts.ranks.gpu_names}
    kind = kinds.pop() if len(kinds) == 1 else None
    if facts.ranks.backend == "nccl":
        linked = kind is not None and kind.nvlinks > 0 and not kind.bridged
        ports = {host: len(rates) for host, rates in facts.rdma_gb_per_s.items()}
        findings += judge_networks(facts.by_host, linked=linked, rdma_ports=ports)
        # A ring is as fast as the node with the least to leave by.
        least = min((sum(rates) for rates in facts.rdma_gb_per_s.values()), default=0.0)
        if kind is not None and least > 0:
            nic = least * facts.nodes / facts.ranks.ranks
            judged = [
                (step, judge_step(facts.ranks, step, kind, limits, nodes=facts.nodes, nic_gb_per_s=nic))
                for step in facts.ranks.steps
            ]
            findings += largest_of_each(judged)
    return conclude(findings, step_measurements(facts.ranks))


class TrainingFacts(Facts):
    """A step of all nodes together. ``seconds``: of each, on the first rank; ``own_seconds``: each rank's own passes,
    by name; ``node_seconds``: a step within each node, from its own report."""

    workload: Workload
    nodes: int
    ranks: int
    seconds: tuple[float, ...]
    own_seconds: dict[str, float]
    node_seconds: dict[str, float]
    by_rdma: bool


def judge_training(facts: TrainingFacts, limits: Limits) -> Judgement:
    """What is lost between nodes, and which rank the others wait for."""
    if facts.nodes < 2 or len(facts.seconds) < MIN_SAMPLES or not facts.node_seconds or min(facts.seconds) <= 0:
        text = f"{len(facts.seconds)} steps over {facts.nodes} node(s), of which {len(facts.node_seconds)} told theirs"
        return Judgement(Verdict.INCONCLUSIVE, text)
    within = percentile(list(facts.node_seconds.values()), 50)
    shares = [within / seconds for seconds in facts.seconds]
    where = f"{facts.nodes} nodes"
    numbers = [
        measurement("step rate together", [facts.workload.pack_tokens / s for s in facts.seconds], "tokens/s", where),
        measurement("training of all nodes over one", shares, "1", where),
    ]
    shown = f"{facts.ranks} ranks of {facts.nodes} nodes train at {percentile(shares, 50):.1%} of a node's rate"
    findings: list[Finding] = []
    if facts.by_rdma:
        verdict, text = judge_rate(limits.of(training_limits.NODES), shares, where)
        findings.append((verdict, text if verdict is not Verdict.PASS else shown))
    else:
        findings.append((Verdict.SKIPPED, f"{shown} (recorded, not judged: no RDMA)"))
        findings.append((Verdict.PASS, "all ranks train together"))
    return conclude([*findings, *late_ranks(facts.own_seconds)], numbers)


def _between_nodes(request: Request) -> NoReturn:
    raise RuntimeError(f"{request.check} needs several nodes: start with srun or torchrun")


CHECKS: tuple[AnyCheck, ...] = (
    Check(
        name="cluster.presence",
        question="Did every node that was started answer to the end?",
        remedy="look at the node's console and power; what it was doing when it fell silent is the first suspect",
        facts=PresenceFacts,
        measure=_between_nodes,
        judge=judge_presence,
    ),
    Check(
        name="cluster.fingerprint",
        question="Are all nodes alike in hardware and software?",
        remedy="bring the named node to what most nodes have: image, driver, firmware, or the GPU that is missing",
        facts=FingerprintFacts,
        measure=_between_nodes,
        judge=judge_fingerprints,
    ),
    Check(
        name="cluster.names",
        question="Does every node resolve the names of all others?",
        remedy="mend DNS or /etc/hosts for the named hosts; NCCL and torchrun find their peers by name",
        facts=NamesFacts,
        measure=_between_nodes,
        judge=judge_names,
    ),
    Check(
        name="cluster.clock",
        question="Do the clocks of all nodes agree?",
        remedy="start chrony or ntpd on the named node, and check that it reaches its time servers",
        facts=ClocksFacts,
        measure=_between_nodes,
        judge=judge_clocks,
    ),
    Check(
        name="cluster.fleet",
        question="Does any GPU or node fall behind its equals on other nodes?",
        remedy="swap the named part with a sound one; when the fault moves with it, replace it",
        facts=FleetFacts,
        measure=_between_nodes,
        judge=judge_fleet,
    ),
    Check(
        name="cluster.blame",
        question="Which node, port, cable or path is slower than the others, or computes wrong sums?",
        remedy="see tickets.md for the part, its evidence and the command that shows it again; test again without it",
        facts=BlameFacts,
        measure=_between_nodes,
        judge=judge_blame,
    ),
    Check(
        name="cluster.collectives",
        question="Do all nodes together exchange and add up data exactly?",
        remedy="when every pair is sound and the whole is not, the fault is in the fabric or needs the size",
        facts=WholeFacts,
        measure=_between_nodes,
        judge=judge_whole,
    ),
    Check(
        name="cluster.training",
        question="Do all nodes together train as fast, per GPU, as each node does by itself?",
        remedy="a late rank is named; else it is what gradients go by: see cluster.collectives and cluster.blame",
        facts=TrainingFacts,
        measure=_between_nodes,
        judge=judge_training,
        limits=(training_limits.NODES,),
    ),
)


def merged(results: Mapping[str, list[CheckResult]]) -> list[CheckResult]:
    """One result for each check: the gravest verdict of all nodes, with the hosts that have it. Pure."""
    names = list(dict.fromkeys(result.check for found in results.values() for result in found))
    whole = []
    for name in names:
        of_hosts = [(host, result) for host, found in results.items() for result in found if result.check == name]
        judgement = conclude(
            [(result.verdict, f"{host}: {result.reason}") for host, result in of_hosts],
            [
                number.model_copy(update={"where": placed(host, number.where)})
                for host, result in of_hosts
                for number in result.measurements
            ],
            when_passed=f"{len(of_hosts)} nodes pass; {of_hosts[0][0]}: {of_hosts[0][1].reason}",
        )
        # What some nodes skip, the others answer.
        told = [result for _, result in of_hosts if result.verdict is judgement.verdict]
        whole.append(
            told[0].model_copy(
                update={
                    "verdict": judgement.verdict,
                    "reason": judgement.reason,
                    "measurements": judgement.measurements,
                    "seconds": max(result.seconds for _, result in of_hosts),
                }
            )
            if told
            else of_hosts[0][1]
        )
    return whole


def placed(host: str, where: str) -> str:
    return where if where.startswith(host) else f"{host} {where}"


def placed_parts(parts: Mapping[str, list[Part]]) -> list[Part]:
    return [
        part.model_copy(update={"where": placed(host, part.where)}) for host, found in parts.items() for part in found
    ]


def fleet_rates(results: Mapping[str, list[CheckResult]]) -> dict[str, dict[str, float]]:
    """Rates of equal parts of all nodes, by what was measured; only where every node has it."""
    rates: dict[str, dict[str, float]] = {}
    for host, found in results.items():
        for result in found:
            for number in result.measurements:
                if number.unit.endswith("/s") and not result.check.startswith("storage"):
                    rates.setdefault(f"{number.name}, {result.check}", {})[placed(host, number.where)] = number.value
    return rates
