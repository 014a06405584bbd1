"""The watchdog itself: ``python -m seatrial.dist.watchdog.process``, one to a node, started by its first rank.

Outside the ranks' interpreters, so that it sees what happens to them, and free to wait for nothing: what may block on
a file server is done in threads that are not waited for.
"""

import os
import select
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from seatrial.dist.heartbeat import RankBeats
from seatrial.dist.watchdog.farewell import first_error
from seatrial.dist.watchdog.nodes import TELL_SECONDS, NodeReport, OtherNodes, lowest_rank, tell
from seatrial.dist.watchdog.sight import LocalRanks, process_state
from seatrial.dist.watchdog.verdict import (
    LAST_WORDS,
    SILENT_SECONDS,
    Finding,
    RankView,
    StepTimes,
    find_death,
    find_stall,
    limit_seconds,
)
from seatrial.errors import SeatrialError
from seatrial.records import Frozen, JsonObject
from seatrial.rundir import RunDir

LOOK_SECONDS = 0.25
FROZEN_SECONDS = 2.0
"""Between two looks: we did not run, so perhaps nobody did (a suspended job), and nobody is late for it."""

FAREWELL_SECONDS = 2.0
"""What ranks get to say what they know after one of them was killed. Nothing that takes all of them can succeed."""

ERROR_SECONDS = 12.0
"""The same after one failed with an error: a save under way may still be completed (``ABANDON_SECONDS``)."""

STACK_SECONDS = 1.0
STUCK_LAUNCHER_SECONDS = 3.0
"""A torchrun stopped for longer is said; for twice as long and the time of a hanging step, given up. Ranks tell each
other of their checkpoints through a store that it keeps: nothing is committed while it is stopped."""

RECORD_SECONDS = 3.0


class Watched(Frozen):
    """Whom to watch. ``first`` to ``first + count`` are the ranks of this node, which is one of ``nodes``."""

    run: Path
    attempt: int
    first: int
    count: int
    node: int
    nodes: int
    host: str
    launcher: int
    hang_seconds: float

    @property
    def generation(self) -> str:
        return str(self.attempt)


@dataclass(frozen=True)
class Ending:
    """Why an attempt is ended, as an event, and what its ranks get until they are killed. ``at``: since the epoch."""

    event: str
    what: str
    finding: Finding
    seconds: float
    exit_code: int = SeatrialError.exit_code
    at: float = field(default_factory=time.time)


def main(watched: Watched, lifeline: int) -> None:
    """Watch until the ranks of this node have ended, whichever way, and write down what they no longer can."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # sent to all processes of a job, and the ranks' to answer
    run = RunDir(watched.run)
    local = LocalRanks(watched.run, range(watched.first, watched.first + watched.count), watched.generation)
    ending, views, gossip = _watch(watched, run, local, lifeline)
    between_looks = ending is None
    ending = ending or _death(views, Launcher(watched.launcher)) or _failure(watched, views)
    if ending is not None and watched.nodes > 1:
        ending = gossip.agree(views, ending)
    if ending is not None and _is_recorder(watched, [*views, *gossip.views]):
        if between_looks:
            _within(RECORD_SECONDS, partial(_record, watched, run, local, ending, views))
        _within(RECORD_SECONDS, partial(_correct_outcome, watched, run, ending))
    if all(view.phase == "done" for view in views):
        local.forget()


def _watch(
    watched: Watched, run: RunDir, local: LocalRanks, lifeline: int
) -> tuple[Ending | None, list[RankView], "Gossip"]:
    """Until all ranks of this node have ended; what we had to end them for, how they were seen, and what we heard."""
    times, gossip, agent = StepTimes(), Gossip(watched), Launcher(watched.launcher)
    began = looked = time.monotonic()
    ending: Ending | None = None
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
            return ending, views, gossip  # without views: our rank has gone, and its file is a later attempt's, or gone
        gossip.say(views, times.median, ending)
        if agent.stuck_seconds() > STUCK_LAUNCHER_SECONDS and not agent.said:
            agent.said = True
            _within(RECORD_SECONDS, partial(run.event, "alarm", what="launcher stopped", reason=agent.reason))
        if ending is None:
            ending = _reason_to_end(watched, local, gossip, agent, views, times.median, began)
            if ending is None:
                continue
            over = time.monotonic() + ending.seconds
            gossip.say(views, times.median, ending)
            if _is_recorder(watched, [*views, *gossip.views]):
                _within(RECORD_SECONDS, partial(_record, watched, run, local, ending, views))
        if time.monotonic() >= over:
            local.kill([view for view in views if not view.has_ended and view.phase != "done"])
            agent.end_if_stuck()


def _reason_to_end(
    watched: Watched,
    local: LocalRanks,
    gossip: "Gossip",
    agent: "Launcher",
    views: list[RankView],
    median: float | None,
    began: float,
) -> Ending | None:
    if (died := _death(views, agent)) is not None:
        return died
    if (failed := _failure(watched, views)) is not None:
        return failed
    patience = 2 * STUCK_LAUNCHER_SECONDS + limit_seconds("step", median or 0.0, watched.hang_seconds)
    if agent.stuck_seconds() > patience:
        return Ending("fault", "launcher stopped", Finding(agent.reason), 0.0)
    if gossip.concluded is not None:
        return gossip.concluded
    if find_stall([*views, *gossip.views], median, watched.hang_seconds) is None:
        return None
    local.ask_for_stacks(views)
    time.sleep(STACK_SECONDS)
    seen = _with_stacks(local, local.views(local.beats(), since=began))
    if watched.nodes > 1:
        gossip.exchange(seen)
    finding = find_stall([*seen, *gossip.views], median, watched.hang_seconds)
    return Ending("stall", "stall", finding, 0.0) if finding is not None else None


def _death(views: Sequence[RankView], agent: "Launcher") -> Ending | None:
    if agent.is_gone():
        return Ending("fault", "launcher killed", Finding(agent.reason), 0.0)
    finding = find_death(views)
    return Ending("fault", "killed", finding, FAREWELL_SECONDS) if finding is not None else None


def _failure(watched: Watched, views: Sequence[RankView]) -> Ending | None:
    """The first error of several is the cause; the others are what a rank sees of it."""
    failed = tuple(view for view in views if view.phase == "failed")
    if not failed:
        return None
    error = first_error(watched.run, range(watched.first, watched.first + watched.count))
    if error is None:
        return Ending("fault", "failed", Finding("a rank failed", failed), ERROR_SECONDS)
    culprits = tuple(view for view in failed if view.rank == error.rank)
    return Ending("fault", "failed", Finding(error.reason, culprits), ERROR_SECONDS, exit_code=error.exit_code)


def _with_stacks(local: LocalRanks, views: Sequence[RankView]) -> list[RankView]:
    return [
        replace(view, stack=local.main_stack(view.rank), collectives=local.collectives_begun(view.rank))
        for view in views
    ]


def _learn(times: StepTimes, beats: Sequence[RankBeats]) -> None:
    for rank in beats[:1]:
        if rank.main is not None and rank.main.phase == "step":
            times.saw(rank.main.step, rank.main.began)


def _is_recorder(watched: Watched, everybody: Sequence[RankView]) -> bool:
    """One node writes for all: that of the first rank, or, when that one is silent, of the first that is not."""
    heard = [view for view in everybody if view.silent_seconds <= SILENT_SECONDS]
    ours = range(watched.first, watched.first + watched.count)
    return lowest_rank(everybody) == 0 and lowest_rank(heard) in ours


def _record(watched: Watched, run: RunDir, local: LocalRanks, ending: Ending, views: Sequence[RankView]) -> None:
    """Say what happened, with the evidence beside it, while the ranks still live."""
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
    outcome = run.read_outcome()
    if (starts and starts[-1] != watched.attempt) or (outcome is not None and _is_true(outcome, ending)):
        return
    reason = ending.finding.reason
    if outcome is None:
        run.event("failed", reason=reason, exit_code=ending.exit_code, attempt=watched.attempt)
    run.write_outcome("failed", reason, ending.exit_code)


def _is_true(outcome: JsonObject, ending: Ending) -> bool:
    """torchrun tells the others to stop when one was killed, and they may take that for a wish. One that is killed
    because it did not stop in time dies later."""
    if outcome["status"] == "preempted":
        return bool(ending.what != "killed" or ending.at > outcome["time"] + FAREWELL_SECONDS)
    return bool(outcome["status"] == "done")


class Launcher:
    """torchrun's agent on this node, which restarts ranks that end; none when its process id is 0."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stuck_since: float | None = None
        self.said = False

    @property
    def reason(self) -> str:
        if self.is_gone():
            return f"torchrun (process {self._pid}) has ended, and its ranks with it"
        return (
            f"torchrun (process {self._pid}) is stopped (SIGSTOP): until it goes on, no checkpoint is committed and no "
            "rank that ends is started again"
        )

    def is_gone(self) -> bool:
        return self._pid != 0 and not process_state(self._pid)

    def stuck_seconds(self) -> float:
        """Since it was first seen stopped."""
        if self._pid == 0 or process_state(self._pid) != "T":
            self._stuck_since, self.said = None, False
            return 0.0
        self._stuck_since = self._stuck_since or time.monotonic()
        return time.monotonic() - self._stuck_since

    def end_if_stuck(self) -> None:
        """When its ranks are gone it would keep their place for nothing."""
        if self._pid and process_state(self._pid) == "T":
            os.kill(self._pid, signal.SIGKILL)


class Gossip:
    """Tells other nodes how this one is and hears how they are, in a thread that a dead file server may keep.

    Others are listened to only when our own ranks wait for something: with many nodes, files read would be too many.
    """

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._others = OtherNodes(watched.run, watched.node, watched.nodes, watched.generation)
        self._report = NodeReport(watched.generation, watched.host, 0, ())
        self._listening = False
        self._due, self._did = threading.Event(), threading.Event()
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def views(self) -> list[RankView]:
        return self._others.views

    @property
    def concluded(self) -> Ending | None:
        """What another node ends its ranks for."""
        report = self._others.concluded
        return Ending("fault", report.what, Finding(report.finding), FAREWELL_SECONDS) if report is not None else None

    def say(self, views: Sequence[RankView], median: float | None, ending: Ending | None) -> None:
        """What the next report holds; at once when this node ends its ranks."""
        finding, what = (ending.finding.reason, ending.what) if ending is not None else ("", "")
        urgent = finding != self._report.finding
        self._report = replace(self._report, views=tuple(views), finding=finding, what=what)
        self._listening = any(view.idle_seconds > 1.0 + 1.5 * (median or 0.0) for view in views)
        if urgent:
            self._due.set()

    def exchange(self, views: Sequence[RankView]) -> None:
        """Tell now, with stacks, and hear what the others saw meanwhile."""
        self._report, self._listening = replace(self._report, views=tuple(views)), True
        time.sleep(STACK_SECONDS / 2)
        self._did.clear()
        self._due.set()
        self._did.wait(RECORD_SECONDS)

    def agree(self, views: Sequence[RankView], ending: Ending) -> Ending:
        """Tell why ours have ended; where all that we know is an error, hear what another node knows of its cause."""
        self.say(views, None, ending)
        deadline = time.monotonic() + RECORD_SECONDS
        while time.monotonic() < deadline:
            self._listening = True
            self._did.clear()
            self._due.set()
            self._did.wait(deadline - time.monotonic())
            told = self.concluded
            if ending.what != "failed" or (told is not None and told.what != "failed"):
                break
            time.sleep(LOOK_SECONDS)
        told = self.concluded
        return told if ending.what == "failed" and told is not None and told.what != "failed" else ending

    def _run(self) -> None:
        told = 0.0
        while True:
            urgent = self._due.wait(LOOK_SECONDS if self._listening else TELL_SECONDS)
            self._due.clear()
            try:
                if urgent or time.monotonic() - told > TELL_SECONDS:
                    self._report = replace(self._report, number=self._report.number + 1)
                    tell(self._watched.run, self._watched.node, self._report)
                    told = time.monotonic()
                if self._listening:
                    self._others.read()
            except OSError as error:  # the others take our silence for an answer
                print(f"watchdog: {error}", file=sys.stderr)  # noqa: T201
            self._did.set()


def _within(seconds: float, act: Callable[[], None]) -> None:
    """Do it, but never wait longer for the file server of the run directory."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(seconds)


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
