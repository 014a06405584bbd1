"""The acceptance of many nodes, as each node runs it: test yourself, tell the others, then play them.

Node 0 conducts. It waits for nobody who is silent: a node that is missing fails, with its last heartbeat, and the
others go on. When node 0 is missing, every node still has the verdict on itself.
"""

import platform
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seatrial.accept import runner
from seatrial.accept.blame.inquest import Inquest, investigate
from seatrial.accept.blame.ticket import ticket, ticket_text
from seatrial.accept.check import AnyCheck
from seatrial.accept.cluster import checks as between
from seatrial.accept.cluster.board import Board, Heart, Pulses, Unreachable
from seatrial.accept.cluster.conductor import RankCluster, wrong_nodes
from seatrial.accept.cluster.crew import Crew, interface_to
from seatrial.accept.cluster.member import Seat
from seatrial.accept.cluster.node import clock_offset, clock_server, fingerprint, unresolved
from seatrial.accept.cluster.place import Place
from seatrial.accept.cluster.together import over_all, slow_at_scale, train_all
from seatrial.accept.facts import Facts
from seatrial.accept.inventory import take_inventory
from seatrial.acceptance import Acceptance, NodeGrade, Part
from seatrial.hardware import node_name
from seatrial.records import CheckResult, JsonObject, Verdict, append_jsonl

PREFIX = "seatrial-accept"
SURVEY_SECONDS = 60.0


@dataclass(frozen=True)
class Task:
    """What a node does by itself, and how long it waits for others: see :func:`run_node`."""

    out: Path
    checks: Sequence[AnyCheck]
    budget_seconds: float
    settings: runner.Settings
    silent_seconds: float = 20.0
    appear_seconds: float = 180.0


def run_node(place: Place, task: Task, show: Callable[[CheckResult], None]) -> Acceptance:
    """This node's part. Node 0 returns the verdict on the whole, the others that on themselves."""
    own = task.out / f"node-{place.node:05d}"
    try:
        board = Board.at(
            place.address, place.port, host=place.hosts_store, prefix=PREFIX, timeout_seconds=task.appear_seconds
        )
    except Unreachable as error:
        results = [*runner.run_ladder(own, task.checks, task.budget_seconds, task.settings), _alone(place, str(error))]
        return runner.conclude(own, results, 0.0, profile=task.settings.profile)
    with Heart(board, place.node) as heart:
        gpus = take_inventory().gpus
        board.post(
            f"hello/{place.node}", {"host": node_name(), "name": platform.node(), "gpus": gpus, "print": fingerprint()}
        )
        start = time.monotonic()
        results = []
        heart.doing = task.checks[0].name if task.checks else "waiting"
        for result in runner.run_ladder(own, task.checks, task.budget_seconds, task.settings):
            results.append(result)
            show(result)
            heart.doing = task.checks[len(results)].name if len(results) < len(task.checks) else "waiting for others"
        acceptance = runner.conclude(own, results, time.monotonic() - start, profile=task.settings.profile)
        board.post(f"result/{place.node}", acceptance.model_dump(mode="json"))
        try:
            if place.node == 0:
                return _conduct(place, board, task, start, show, heart)
            _attend(place, board, task, heart)
        except Unreachable as error:
            results.append(_alone(place, str(error)))
            acceptance = runner.conclude(own, results, time.monotonic() - start, profile=task.settings.profile)
        return acceptance


def _alone(place: Place, why: str) -> CheckResult:
    (presence,) = (check for check in between.CHECKS if check.name == "cluster.presence")
    reason = f"node {place.node} tested itself alone: {why}"
    return CheckResult(
        check=presence.name,
        question=presence.question,
        verdict=Verdict.INCONCLUSIVE,
        reason=reason,
        remedy=presence.remedy,
    )


def _conduct(
    place: Place, board: Board, task: Task, start: float, show: Callable[[CheckResult], None], heart: Heart
) -> Acceptance:
    """Node 0: gather what the others found, question them, let them play, and conclude."""
    heart.doing = "conducting"
    pulses = Pulses(board, place.nodes, silent_seconds=task.silent_seconds, appear_seconds=task.appear_seconds)
    reports, why = _gather_reports(place, board, task, pulses)
    hosts = unique_hosts({node: (board.read(f"hello/{node}") or {}).get("host", "") for node in range(place.nodes)})
    present = {node: hosts[node] for node in reports}
    results = {hosts[node]: list(report.checks) for node, report in reports.items()}
    prints = {hosts[node]: board.read(f"hello/{node}")["print"] for node in present}
    judged: list[CheckResult] = []

    def conclude(name: str, facts: Facts, began: float) -> None:
        check = next(check for check in between.CHECKS if check.name == name)
        append_jsonl(task.out / "facts.jsonl", {"check": name, "facts": facts.model_dump(mode="json")})
        judgement = check.judge(facts, task.settings.limits)
        judged.append(task.settings.graded(runner.result_of(check, judgement, time.monotonic() - began)))
        show(judged[-1])

    conclude("cluster.presence", between.PresenceFacts(nodes=place.nodes, present=present, missing=why), start)
    conclude("cluster.fingerprint", between.FingerprintFacts(prints=prints), time.monotonic())
    began = time.monotonic()
    names, clocks = _survey(board, hosts, present, pulses)
    conclude("cluster.names", names, began)
    conclude("cluster.clock", clocks, began)
    conclude("cluster.fleet", between.FleetFacts(rates=between.fleet_rates(results)), time.monotonic())
    began = time.monotonic()
    blame, whole, training = _play(place, board, task, hosts, reports, pulses)
    conclude("cluster.blame", blame, began)
    if whole is not None:
        conclude("cluster.collectives", whole, began)
    if training is not None:
        conclude("cluster.training", training, began)
    board.post("end", True)
    board.gather([f"bye/{node}" for node in present if node], 5.0)
    parts = {node: list(report.parts) for node, report in reports.items()}
    _write_tickets(task.out, blame, hosts, parts)
    every = [*between.merged(results), *judged]
    placed = between.placed_parts({hosts[node]: found for node, found in parts.items()})
    tickets = _tickets(blame, hosts, parts)
    grades = node_grades(hosts, reports, why, blame)
    seconds, profile = time.monotonic() - start, task.settings.profile
    return runner.conclude(task.out, every, seconds, placed, tickets, grades, profile)


def node_grades(
    hosts: Mapping[int, str], reports: Mapping[int, Acceptance], missing: Mapping[int, str], blame: between.BlameFacts
) -> list[NodeGrade]:
    """By itself, and by what the others found of it: who is blamed has failed, however sound it is alone. Pure."""
    faults = {blame.hosts[index]: "its sums are wrong with most partners" for index in blame.wrong}
    faults |= {blame.hosts[index]: told for index, told in blame.silent.items()}
    faults |= {blame.hosts[culprit.node]: f"{culprit.kind}: {culprit.part}" for culprit in blame.culprits}
    grades = []
    for node, host in hosts.items():
        if node in missing:
            grades.append(NodeGrade(host=host, verdict=Verdict.FAIL, reason=f"missing: {missing[node]}"))
        elif host in faults:
            grades.append(NodeGrade(host=host, verdict=Verdict.FAIL, reason=faults[host]))
        elif node in reports:
            grades.append(runner.grade_of(host, reports[node].verdict, reports[node].checks))
    return grades


def unique_hosts(names: dict[int, str]) -> dict[int, str]:
    """Host names by node; where two nodes share one, or have none, the number tells them apart."""
    every = list(names.values())
    return {
        node: name if name and every.count(name) == 1 else f"{name or 'node'}#{node}" for node, name in names.items()
    }


def _gather_reports(
    place: Place, board: Board, task: Task, pulses: Pulses
) -> tuple[dict[int, Acceptance], dict[int, str]]:
    """Reports by node, and for the others why there is none."""
    found = board.gather(
        [f"result/{node}" for node in range(place.nodes)],
        task.appear_seconds + 60 + 10 * task.budget_seconds,
        lambda name: pulses.dead(int(name.split("/")[1])),
    )
    reports = {int(name.split("/")[1]): Acceptance.model_validate(report) for name, report in found.items()}
    return reports, {node: pulses.last(node) for node in range(place.nodes) if node not in reports}


def _survey(
    board: Board, hosts: dict[int, str], present: dict[int, str], pulses: Pulses
) -> tuple[between.NamesFacts, between.ClocksFacts]:
    """Names that each node can resolve, and its clock against ours."""
    plain = sorted({board.read(f"hello/{node}")["name"] for node in present})
    with clock_server() as port:
        board.post("survey", {"names": plain, "clock": port})
        own = unresolved(name for name in plain if name != platform.node())
        others = [f"survey/{node}" for node in present if node]
        answers = board.gather(others, SURVEY_SECONDS, lambda name: pulses.dead(int(name.split("/")[1])))
    told = {hosts[int(name.split("/")[1])]: answer for name, answer in answers.items()}
    names = {hosts[0]: tuple(own)} | {host: tuple(answer["unresolved"]) for host, answer in told.items()}
    clocks = {host: tuple(answer["offset"]) for host, answer in told.items() if answer["offset"]}
    return between.NamesFacts(unresolved=names), between.ClocksFacts(offsets={hosts[0]: (0.0, 0.0), **clocks})


def _play(
    place: Place, board: Board, task: Task, hosts: dict[int, str], reports: dict[int, Acceptance], pulses: Pulses
) -> tuple[between.BlameFacts, between.WholeFacts | None, between.TrainingFacts | None]:
    """The tournament among nodes that are sound by themselves, then collectives and training over all of them."""
    excluded = {hosts[node]: why for node, report in reports.items() if (why := _unfit(report))}
    members = [node for node in reports if hosts[node] not in excluded]
    names = tuple(hosts[node] for node in members)
    gpus = min((board.read(f"hello/{node}")["gpus"] for node in members), default=0)
    local_size, backend = max(gpus, 1), "nccl" if gpus else "gloo"
    board.post("start", {"members": members, "ranks": local_size, "backend": backend})
    cluster = RankCluster(board, members, local_size, has_gpus=gpus > 0, dead=pulses.dead)
    inquest: Inquest | None = None
    whole: between.WholeFacts | None = None
    training: between.TrainingFacts | None = None
    at_scale = ""
    with _crew(place, task, members, local_size, backend) as crew:
        if len(members) > 1:
            if isinstance(crew, Crew):
                cluster.mind = lambda: crew.mind(board)
            inquest = investigate(cluster)
            left = tuple(index for index in range(len(members)) if not cluster.unanswered[index])
            own = {names[index]: reports[members[index]] for index in left}
            whole = over_all(cluster, left, backend, own)
            training = train_all(cluster, left, own, task.out / f"node-{place.node:05d}")
            at_scale = slow_at_scale(cluster, left, inquest, names) if gpus else ""
        cluster.end()
    silent = {
        index: f"left {count} orders unanswered; {pulses.last(members[index])}"
        for index, count in cluster.unanswered.items()
    }
    rate_NN = inquest.rate_NN if inquest else np.empty((0, 0))
    blame = between.BlameFacts(
        hosts=names,
        rounds=inquest.rounds if inquest else 0,
        culprits=inquest.culprits if inquest else (),
        slow_rails=inquest.slow_rails if inquest else {},
        wrong=tuple(wrong_nodes(cluster.wrong, cluster.played)),
        silent=silent,
        excluded=excluded,
        at_scale=at_scale,
        rates=tuple(tuple(None if np.isnan(rate) else float(rate) for rate in row) for row in rate_NN),
    )
    return blame, whole, training


UNFIT = ("gpu", "fabric", "collectives", "training")
"""Groups of checks by which a node that fails takes no part in what follows."""


def _unfit(report: Acceptance) -> str:
    """Why a node does not play: what it fails by itself, it would fail again in its pairs."""
    return next(
        (
            f"{result.check}: {result.reason}"
            for result in report.checks
            if result.verdict is Verdict.FAIL and result.check.partition(".")[0] in UNFIT
        ),
        "",
    )


def _crew(
    place: Place, task: Task, members: Sequence[int], local_size: int, backend: str
) -> "Crew | nullcontext[None]":
    if place.node not in members or len(members) < 2:
        return nullcontext()
    log = task.out / f"node-{place.node:05d}" / "ranks.log"
    seats = [
        Seat(
            address=place.address,
            port=place.port,
            prefix=PREFIX,
            node=place.node,
            local=local,
            backend="nccl" if backend == "nccl" else "gloo",
            interface=interface_to(place.address),
            log=str(log.with_name(f"nccl-{local}.log")),
        )
        for local in range(local_size)
    ]
    return Crew(seats, log)


def _attend(place: Place, board: Board, task: Task, heart: Heart) -> None:
    """Other nodes: answer the survey, keep our ranks alive, and leave when node 0 says so."""
    survey = _until(board, "survey")
    try:
        offset: tuple[float, float] | None = clock_offset(place.address, survey["clock"])
    except OSError:
        offset = None  # no answer is no clock: the judge sees that this node's is missing
    missing = unresolved(name for name in survey["names"] if name != platform.node())
    board.post(f"survey/{place.node}", {"unresolved": missing, "offset": offset})
    start = _until(board, "start")
    heart.doing = "the tournament"
    with _crew(place, task, start["members"], start["ranks"], start["backend"]) as crew:
        while board.wait("end", 0.5) is None:
            if isinstance(crew, Crew):
                crew.mind(board)
    board.post(f"bye/{place.node}", True)


def _until(board: Board, name: str) -> JsonObject:
    """Wait for a note of node 0. Raises: Unreachable: node 0 is gone."""
    while (note := board.wait(name, 1.0)) is None:
        pass
    found: JsonObject = note
    return found


def _tickets(blame: between.BlameFacts, hosts: dict[int, str], parts: dict[int, list[Part]]) -> list[JsonObject]:
    by_host = {name: node for node, name in hosts.items()}
    of_index = {index: parts.get(by_host[name], []) for index, name in enumerate(blame.hosts)}
    return [ticket(culprit, blame.hosts, of_index) for culprit in blame.culprits]


def _write_tickets(out: Path, blame: between.BlameFacts, hosts: dict[int, str], parts: dict[int, list[Part]]) -> None:
    tickets = _tickets(blame, hosts, parts)
    if tickets:
        (out / "tickets.md").write_text(ticket_text(tickets))
