"""The watchdog itself: ``python -m seatrial.dist.watchdog.process``, one to a node, started by its first rank.

Outside the ranks' interpreters, so that it sees what happens to them, and free to wait for nothing: what may block on
a file server is done in threads that are not waited for.
"""

import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from seatrial.dist.heartbeat import RankBeats
from seatrial.dist.watchdog.ending import Ending, is_true, of_death, of_error, of_standstill
from seatrial.dist.watchdog.farewell import first_error
from seatrial.dist.watchdog.gossip import RECORD_SECONDS, Gossip
from seatrial.dist.watchdog.launcher import Launcher
from seatrial.dist.watchdog.nodes import within
from seatrial.dist.watchdog.sight import LocalRanks
from seatrial.dist.watchdog.verdict import LAST_WORDS, RankView, StepTimes, find_stall
from seatrial.records import Frozen, JsonObject
from seatrial.rundir import RunDir

LOOK_SECONDS = 0.25
FROZEN_SECONDS = 2.0
"""Between two looks: we did not run, so perhaps nobody did (a suspended job), and nobody is late for it."""

STACK_SECONDS = 1.0


class Watched(Frozen):
    """Whom to watch. ``first`` to ``first + count`` are the ranks of this node, which is one of ``nodes``.

    ``pid``: of the first of them. ``generation``: the same for all ranks that train together, and for no others.
    """

    run: Path
    attempt: int
    generation: str
    first: int
    count: int
    pid: int
    node: int
    nodes: int
    host: str
    launcher: int
    hang_seconds: float

    @property
    def ranks(self) -> range:
        return range(self.first, self.first + self.count)


@dataclass(frozen=True)
class Watch:
    """How it ended: what we had to end the ranks for, if that was said already, and how they were seen last."""

    ending: Ending | None
    is_recorded: bool
    views: list[RankView]


def main(watched: Watched, lifeline: int) -> None:
    """Watch until the ranks of this node have ended, whichever way, and write down what they no longer can."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # sent to all processes of a job, and the ranks' to answer
    run, agent = RunDir(watched.run), Launcher(watched.launcher)
    local = LocalRanks(watched.run, watched.ranks, watched.generation)
    gossip = Gossip(
        watched.run, watched.node, watched.nodes, generation=watched.generation, host=watched.host
    )  # fmt: skip
    watch = _watch(watched, run, local, gossip, agent, lifeline)
    ending = watch.ending or _death(watch.views, agent) or _failure(watched, watch.views)
    if watched.nodes > 1:
        gossip.tell_end(watch.views, ending)
    if watched.nodes > 1 and ending is not None:
        ending = gossip.agree(ending)
        gossip.await_first()
    if ending is not None and gossip.is_first_heard():
        if not watch.is_recorded:
            within(RECORD_SECONDS, partial(_record, watched, run, local, ending, watch.views))
        within(RECORD_SECONDS, partial(_correct_outcome, watched, run, ending))
    agent.wake()
    if all(view.phase == "done" for view in watch.views):
        local.forget()


def _watch(watched: Watched, run: RunDir, local: LocalRanks, gossip: Gossip, agent: Launcher, lifeline: int) -> Watch:
    """Until all ranks of this node have ended."""
    times = StepTimes()
    began = looked = time.monotonic()
    ending: Ending | None = None
    is_recorded = False
    over = 0.0
    while True:
        is_alone = _wait(lifeline, LOOK_SECONDS)
        now = time.monotonic()
        if now - looked > FROZEN_SECONDS:
            began = now
        looked = now
        beats = local.beats()
        _learn(times, beats)
        views = local.views(beats, since=began)
        # Without a launcher a rank may be part of a process that lives on after it.
        said = LAST_WORDS if watched.launcher == 0 else ("done",)
        if (views or is_alone) and all(view.has_ended or view.phase in said for view in views):
            # Without views our rank has gone, and its file is a later attempt's, or gone.
            return Watch(ending, is_recorded, views)
        gossip.say(views, times.median, ending)
        if agent.was_stopped():
            within(RECORD_SECONDS, partial(run.event, "alarm", what="launcher stopped", reason=agent.stop))
        if ending is None:
            ending = _reason_to_end(watched, local, gossip, agent, views, times.median, began)
            if ending is None:
                continue
            over = time.monotonic() + ending.seconds
            gossip.say(views, times.median, ending)
            # What only became of something on another node is said once it is known what that was.
            if gossip.is_first_heard() and not (ending.is_echo and watched.nodes > 1):
                is_recorded = True
                within(RECORD_SECONDS, partial(_record, watched, run, local, ending, views))
        if time.monotonic() >= over:
            local.kill([view for view in views if not view.has_ended and view.phase != "done"])


def _reason_to_end(
    watched: Watched,
    local: LocalRanks,
    gossip: Gossip,
    agent: Launcher,
    views: list[RankView],
    median: float | None,
    began: float,
) -> Ending | None:
    if (died := _death(views, agent)) is not None:
        return died
    if (failed := _failure(watched, views)) is not None:
        return failed
    if gossip.concluded is not None:
        return gossip.concluded
    if find_stall([*views, *gossip.views], median, watched.hang_seconds) is None:
        return None
    noticed = time.monotonic()
    local.ask_for_stacks(views)
    time.sleep(STACK_SECONDS)
    seen = _with_stacks(local, local.views(local.beats(), since=began))
    if watched.nodes > 1:
        all_known = gossip.exchange(seen, noticed)
        if gossip.concluded is not None:  # sooner than we: its ranks are ended, and wait no more
            return gossip.concluded
        if not all_known:
            return None
    finding = find_stall([*seen, *gossip.views], median, watched.hang_seconds)
    return of_standstill(finding) if finding is not None else None


def _death(views: Sequence[RankView], agent: Launcher) -> Ending | None:
    return of_death(views, agent.end if agent.is_gone() else None)


def _failure(watched: Watched, views: Sequence[RankView]) -> Ending | None:
    """The first error of several is the cause; the others are what a rank sees of it."""
    failed = [view for view in views if view.phase == "failed"]
    if not failed:
        return None
    return of_error(failed, first_error(watched.run, watched.generation, watched.ranks), time.monotonic())


def _with_stacks(local: LocalRanks, views: Sequence[RankView]) -> list[RankView]:
    return [
        replace(view, stack=local.main_stack(view.rank), collectives=local.collectives_begun(view.rank))
        for view in views
    ]


def _learn(times: StepTimes, beats: Sequence[RankBeats]) -> None:
    for rank in beats[:1]:
        if rank.main is not None and rank.main.phase == "step":
            times.saw(rank.main.step, rank.main.began)


def _record(watched: Watched, run: RunDir, local: LocalRanks, ending: Ending, views: Sequence[RankView]) -> None:
    """Say what happened, with the evidence beside it, while the ranks still live."""
    if not _is_ours(watched, run):
        return
    finding = ending.finding
    where = watched.run / "stalls" / f"attempt-{watched.attempt:03d}"
    said: JsonObject = {"what": ending.what, "reason": finding.reason, "attempt": watched.attempt}
    said["ranks"] = finding.ranks
    for culprit in finding.culprits[:1]:
        said |= {"step": culprit.step, "phase": culprit.phase, "host": culprit.host, "pid": culprit.pid}
    if ending.event == "stall":
        said["stacks"] = str(where.relative_to(watched.run))
    if ending.event == "stall":
        where.mkdir(parents=True, exist_ok=True)
        for view in views:
            (where / f"rank-{view.rank:05d}.txt").write_text(local.stacks(view.rank) or f"{_no_stack(view)}\n")
            if (dump := local.recorder(view.rank)) is not None:
                shutil.copy(dump, where / f"rank-{view.rank:05d}.nccl")
    run.event(ending.event, **said)


def _no_stack(view: RankView) -> str:
    return f"{view.name}, state {view.state}, in {view.doing}: wrote no stack; a stopped process cannot"


def _correct_outcome(watched: Watched, run: RunDir, ending: Ending) -> None:
    """What the first rank could not write, or could not know: another's end reaches it as a broken connection."""
    starts = [event["attempt"] for event in run.read_events() if event["event"] == "start"]
    if (starts and starts[-1] != watched.attempt) or not _is_ours(watched, run):
        return
    outcome = run.read_outcome()
    if outcome is not None and is_true(outcome, ending):
        return
    reason = ending.finding.reason
    if outcome is None or outcome["status"] == "preempted":  # whose event was no truer
        run.event("failed", reason=reason, exit_code=ending.exit_code, attempt=watched.attempt)
    run.write_outcome("failed", reason, ending.exit_code)


def _is_ours(watched: Watched, run: RunDir) -> bool:
    """Whether the directory is still our run's: ``--fresh`` puts another in its place, with attempts of its own."""
    ours = [event for event in run.read_events() if event["event"] == "start" and event["attempt"] == watched.attempt]
    return all(event["pids"][watched.first] == watched.pid for event in ours)


def _wait(lifeline: int, seconds: float) -> bool:
    """Until it is time to look again, or our rank ends: its end of the pipe closes however it does. Whether it has."""
    ready, _, _ = select.select([lifeline], [], [], seconds)
    if ready:
        time.sleep(0.02)
    return bool(ready)


if __name__ == "__main__":
    main(Watched.model_validate_json(sys.argv[1]), sys.stdin.fileno())
    sys.stderr.flush()
    os._exit(0)  # threads that a dead file server keeps are left behind
