"""Who is late: a function of what all ranks were last seen doing."""

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from seatrial.dist.heartbeat import PHASES

LIMIT_SECONDS = {
    "start": 300.0,
    "data": 3600.0,
    "load": 3600.0,
    "restore": 1800.0,
    "compile": 1800.0,
    "step": 600.0,
    "save.stage": 300.0,
    "save.write": 1800.0,
    "save.manifest": 1800.0,
    "save.commit": 1800.0,
    "save.collect": 1800.0,
    "evaluate": 1800.0,
    "export": 3600.0,
    "done": 300.0,
    "failed": 60.0,
}
"""How long a rank may do one thing without getting further. Generous, as nothing is known of it: rows are read from
slow disks and kernels compiled for minutes. That of a step holds until the run's own steps say better."""

STEPS_LEARNT = 5
"""Fewer step times than these tell nothing: the first few compile, and fill caches."""

STEP_TIMES = 3.0
"""Times the median step, plus ``hang_seconds``: a step this long is not one any more."""

LOCKED_SECONDS = 2.0
"""Without the interpreter's lock for longer, when it is asked for every half second: somebody keeps it."""

SILENT_SECONDS = 10.0
"""A node that told nothing for longer, five times what is usual, is down or cut off."""

LOST_SECONDS = 120.0
"""A node that told nothing for longer, while others wait, ends their patience whatever they do. Only a file server that
is overloaded takes as long for a small file."""

_REMEMBERED = 50

LAST_WORDS = ("done", "failed")

_BETWEEN_STEPS = {"save.stage": 0, "save.write": 1, "save.manifest": 2, "save.commit": 3, "save.collect": 4,
                  "evaluate": 5, "step": 6}  # fmt: skip
_WAITING = re.compile(
    r"torch/distributed/|torch/cuda/streams|seatrial/dist/\S+ line \d+ in wait|train/step\S+ line \d+ in (wait|read)"
)
_OF_A_THREAD = re.compile(r'threading\.py", line \d+ in _bootstrap$', re.MULTILINE)
_COMPILING = re.compile(r"torch/_(dynamo|inductor|functorch)/|triton/compiler/")


@dataclass(frozen=True)
class RankView:
    """A rank as it was seen last.

    ``idle_seconds``: since it last got further. ``state``: the kernel's letter for its process, empty when there is no
    such process any more. ``pulse_seconds``: since a side thread of it last had the interpreter's lock.
    ``silent_seconds``: how old all of this is, for ranks of other nodes. ``stack``: of its main thread, innermost call
    first, once it was asked for. ``collectives``: how many its GPU has begun, -1 when not known.
    """

    rank: int
    host: str
    pid: int
    phase: str
    step: int
    marks: int
    idle_seconds: float
    state: str = "S"
    pulse_seconds: float = 0.0
    silent_seconds: float = 0.0
    stack: str = ""
    collectives: int = -1

    @property
    def has_ended(self) -> bool:
        return self.state == ""

    @property
    def was_killed(self) -> bool:
        """Gone without a last word."""
        return self.has_ended and self.phase not in LAST_WORDS

    @property
    def is_under_way(self) -> bool:
        return not self.has_ended and self.phase not in LAST_WORDS

    @property
    def is_stopped(self) -> bool:
        return self.state == "T"

    @property
    def is_silent(self) -> bool:
        return self.silent_seconds > SILENT_SECONDS

    @property
    def doing(self) -> str:
        return f"{self.phase} {self.step}" if self.step >= 0 else self.phase

    @property
    def name(self) -> str:
        return f"rank {self.rank} (process {self.pid} on {self.host})"


@dataclass(frozen=True)
class Finding:
    """``culprits`` is empty when all ranks wait for each other at the same place."""

    reason: str
    culprits: tuple[RankView, ...] = ()

    @property
    def ranks(self) -> list[int]:
        return [view.rank for view in self.culprits]


@dataclass
class StepTimes:
    """The run's own step times, learnt from a rank's heartbeats as they are looked at, however seldom."""

    _last: tuple[int, float] | None = None
    _seconds: list[float] = field(default_factory=list)

    def saw(self, step: int, began: float) -> None:
        """Step ``step`` began at ``began``, in seconds of any clock."""
        if self._last is not None and step > self._last[0]:
            passed = step - self._last[0]
            self._seconds.extend([(began - self._last[1]) / passed] * min(passed, _REMEMBERED))
            del self._seconds[:-_REMEMBERED]
        if self._last is None or step != self._last[0]:
            self._last = step, began

    @property
    def median(self) -> float | None:
        """None while too few are known."""
        return statistics.median(self._seconds) if len(self._seconds) >= STEPS_LEARNT else None


def limit_seconds(phase: str, median_step_seconds: float | None, hang_seconds: float) -> float:
    """How long a rank may stay where it is."""
    if phase == "step" and median_step_seconds is not None:
        return STEP_TIMES * median_step_seconds + hang_seconds
    return LIMIT_SECONDS[phase]


def find_death(views: Sequence[RankView]) -> Finding | None:
    """Ranks that were killed: gone, and their last word was not one."""
    killed = tuple(view for view in views if view.was_killed)
    if not killed:
        return None
    return Finding(_listed(killed, lambda view: f"{view.name} was killed in {view.doing}"), killed)


def find_stall(views: Sequence[RankView], median_step_seconds: float | None, hang_seconds: float) -> Finding | None:
    """Nobody gets further, and whoever keeps the others waiting has done so for longer than its phase allows.

    A rank in a phase that may take long (a save, an evaluation) is not late because others wait for it, and those that
    wait are not late at all. A stopped process gets further in no phase: for it the limit is that of a step. What a
    silent node did when it was last heard of is old: those that wait for it decide, by what they do themselves.
    """
    here = [view for view in views if view.is_under_way]
    if not here:
        return None
    late = who_is_late(here)
    silences = [view.silent_seconds for view in late if view.is_silent]
    judged = [view for view in here if not view.is_silent] if silences else late or here
    for view in judged or late:
        limit = limit_seconds(view.phase, median_step_seconds, hang_seconds)
        if view.is_stopped:
            limit = min(limit, limit_seconds("step", median_step_seconds or 0.0, hang_seconds))
        if is_compiling(view.stack):
            limit = max(limit, LIMIT_SECONDS["compile"])
        if silences:
            limit = min(limit, LOST_SECONDS)
        if min([view.idle_seconds, *silences]) <= limit:
            return None
    if late:
        return Finding(_listed(late, _why), tuple(late))
    one = max(here, key=lambda view: view.idle_seconds)
    return Finding(
        f"all {len(here)} ranks wait in {one.doing} for {one.idle_seconds:.1f} s, none behind the others: "
        "a collective, and so a link or a GPU, is stuck"
    )


def who_is_late(views: Sequence[RankView]) -> list[RankView]:
    """The ranks that the others wait for, by the strongest evidence there is; none if all look alike.

    Processes that cannot run, because they are stopped or their node is silent; else, among those furthest behind,
    ones that keep the interpreter's lock, ones whose GPU has begun the fewest collectives, ones whose stack does not
    wait for anybody; else all that are behind.
    """
    if stuck := [view for view in views if view.is_stopped or view.is_silent]:
        return stuck
    furthest_back = min(map(_place, views))
    behind = [view for view in views if _place(view) == furthest_back]
    if locked := [view for view in behind if view.pulse_seconds > LOCKED_SECONDS]:
        return locked
    if len(behind) < len(views):
        return behind
    counted = [view.collectives for view in behind if view.collectives >= 0]
    if len(counted) == len(behind) and min(counted) < max(counted):
        return [view for view in behind if view.collectives == min(counted)]
    busy = [view for view in behind if view.stack and not waits_for_others(view.stack)]
    return busy if len(busy) < len(behind) or len(behind) == 1 else []


def waits_for_others(stack: str) -> bool:
    """Whether a main thread stands in a collective or waits for its GPU, by its three innermost calls."""
    return any(_WAITING.search(line) for line in stack.splitlines()[:3])


def is_compiling(stack: str) -> bool:
    """A step in which a kernel is compiled anew takes as long as that takes."""
    return _COMPILING.search(stack) is not None


def main_stack(dump: str) -> str:
    """The main thread's part of what faulthandler wrote last, innermost call first; empty when it wrote nothing.

    Other threads begin in threading's ``_bootstrap``. Lines read ``File loop.py line 5 in train``.
    """
    blocks = re.split(r"^(?:Current thread|Thread) 0x\S+.*$", dump, flags=re.MULTILINE)
    mains = [block for block in blocks[1:] if "  File" in block and not _OF_A_THREAD.search(block)]
    lines = mains[-1].splitlines() if mains else []
    return "\n".join(line.strip().replace('"', "").replace(",", "") for line in lines if line.startswith("  File"))


def collectives_begun(dump: Mapping[str, object]) -> int:
    """Of a flight recorder's dump: collectives that the GPU has begun, over all process groups."""
    begun: dict[object, int] = {}
    entries = dump.get("entries")
    for entry in entries if isinstance(entries, list) else ():
        if entry.get("state") in ("started", "completed"):
            group = tuple(entry.get("process_group") or (entry.get("pg_id"),))
            begun[group] = max(begun.get(group, 0), int(entry.get("collective_seq_id", 0)))
    return sum(begun.values()) if entries else -1


def _place(view: RankView) -> tuple[int, int, int, int]:
    """How far a rank has come in an attempt. A save of step n comes before step n, which counts from 0."""
    if view.phase in _BETWEEN_STEPS:
        return PHASES.index("step"), view.step, _BETWEEN_STEPS[view.phase], view.marks
    return PHASES.index(view.phase), view.step, 0, view.marks


def _why(view: RankView) -> str:
    if view.is_silent:
        silence = f"its node has been silent for {view.silent_seconds:.0f} s: down, or cut off"
        return f"{view.name} was last heard of in {view.doing}, and {silence}"
    said = f"{view.name} is late: in {view.doing} for {view.idle_seconds:.1f} s"
    if view.is_stopped:
        return f"{said}, stopped (SIGSTOP)"
    if view.pulse_seconds > LOCKED_SECONDS:
        return f"{said}, in a call that keeps the interpreter's lock{_at(view.stack)}"
    if view.state == "D":
        return f"{said}, waiting in the kernel for a disk or a device{_at(view.stack)}"
    return f"{said}{_at(view.stack)}"


def _at(stack: str) -> str:
    """Where in the code: the innermost call."""
    return f", at {stack.splitlines()[0].removeprefix('File ')}" if stack else ""


def _listed(views: Sequence[RankView], say: Callable[[RankView], str]) -> str:
    """The first three in words, the rest as a number: a whole node may be late."""
    said = [say(view) for view in views]
    more = f"; and {len(said) - 3} more ranks" if len(said) > 3 else ""
    return "; ".join(said[:3]) + more
