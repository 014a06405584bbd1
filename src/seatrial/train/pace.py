"""Whether a training keeps the pace that its GPUs had when they were accepted. Pure, but for asking ranks who they are.

Models differ, so tokens a second are not compared but MFU: the share of what a GPU sustains in large products that a
step makes of it, which was 0.64 to 0.79 for steps of an 8B model and is much the same for others whose products are as
large. Ranks are compared with each other, each by how fast its very GPU was.
"""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist

from seatrial.acceptance import read_acceptance, training_baseline
from seatrial.dist.world import World
from seatrial.settings import TrainSettings

LEAST_SHARE = 0.70
"""Of the MFU at acceptance. Healthy steps of other lengths, number formats and batches lie within 20 % of it
(results/step_h100_2026-11-21.md); a GPU held back by heat, or gradients that go by sockets, cost more than 30 %."""
LATE_SHARE = 0.10
"""A rank this much slower than its GPU was, beside the median rank; acceptance warns at half of it."""
PATIENCE_STEPS, PATIENCE_SECONDS = 20, 30.0
"""In a row, and together: a save, a slow read or an evaluation beside it are no slow machine."""
LEAST_IDEAL_SECONDS = 0.05
"""For a pack. The FLOPs of shorter ones are done before their kernels are launched, so that MFU says nothing."""


@dataclass(frozen=True)
class Expected:
    """``mfu``: at acceptance; None: nothing is expected. ``slowness``: by rank, relative to the median GPU."""

    mfu: float | None
    slowness: tuple[float, ...]


@dataclass(frozen=True)
class Alarm:
    """For events.jsonl: a short countable ``what``, and why."""

    what: str
    reason: str


@dataclass(frozen=True)
class Streak:
    """Steps in a row of which the same is said, and the seconds that they took."""

    steps: int = 0
    seconds: float = 0.0

    def and_one_of(self, seconds: float) -> "Streak":
        return Streak(self.steps + 1, self.seconds + seconds)

    @property
    def is_long(self) -> bool:
        return self.steps >= PATIENCE_STEPS and self.seconds >= PATIENCE_SECONDS


@dataclass(frozen=True)
class Pace:
    """``slow``: steps below the rate that is expected; ``late``: those in which ``late_rank`` held up the others."""

    slow: Streak = Streak()
    late: Streak = Streak()
    late_rank: int | None = None


def expected_pace(settings: TrainSettings, world: World) -> Expected | None:
    """What ``run.acceptance`` leads to expect; None where it is not given. Collective.

    Raises:
        UsageError: there is no such file, or it is none of ours.
    """
    if settings.run.acceptance is None:
        return None
    baseline = training_baseline(read_acceptance(settings.run.acceptance))
    ours = str(torch.cuda.get_device_properties(world.device).uuid) if world.device.type == "cuda" else ""
    uuids = [""] * world.size
    dist.all_gather_object(uuids, ours if ours.startswith("GPU-") else f"GPU-{ours}")
    return Expected(baseline.mfu, tuple(baseline.slowness.get(uuid, 1.0) for uuid in uuids))


def says_something(ideal_seconds_per_pack: float | None) -> bool:
    """Whether packs are long enough for their MFU to be compared."""
    return ideal_seconds_per_pack is not None and ideal_seconds_per_pack >= LEAST_IDEAL_SECONDS


def judge_pace(
    pace: Pace, expected: Expected, *, seconds: float, mfu: float | None, rank_seconds: Sequence[float]
) -> tuple[Pace, list[Alarm]]:
    """After one step. An alarm is given once, when patience ends, and again only after the pace was kept in between.

    Args:
        seconds: that the step took.
        mfu: of the step; None where it says nothing.
        rank_seconds: of each rank's own forward and backward passes; zeros where they have not told.
    """
    alarms: list[Alarm] = []
    slow = Streak()
    if expected.mfu is not None and mfu is not None and mfu < LEAST_SHARE * expected.mfu:
        slow = pace.slow.and_one_of(seconds)
        if slow.is_long and not pace.slow.is_long:
            told = (
                f"{slow.steps} steps in a row, {slow.seconds:.0f} s, below {LEAST_SHARE:.0%} of what these GPUs did "
                f"when they were accepted: MFU {mfu:.2f}, then {expected.mfu:.2f}"
            )
            alarms.append(Alarm("slower than accepted", told))
    rank, share = _latest(rank_seconds, expected.slowness)
    late = Streak()
    if rank is not None:
        before = pace.late if rank == pace.late_rank else Streak()
        late = before.and_one_of(seconds)
        if late.is_long and not before.is_long:
            told = (
                f"rank {rank} holds up the others: {late.steps} steps in a row, {late.seconds:.0f} s, its own passes "
                f"took {share:.0%} longer, beside the median rank's, than when its GPU was accepted"
            )
            alarms.append(Alarm("rank slower than accepted", told))
    return Pace(slow, late, rank), alarms


def _latest(rank_seconds: Sequence[float], slowness: Sequence[float]) -> tuple[int | None, float]:
    """The rank that is latest, against what its GPU was, and by which share; None where nobody is."""
    if len(rank_seconds) < 2 or min(rank_seconds) <= 0 or len(slowness) != len(rank_seconds):
        return None, 0.0
    as_fast = [seconds / usual for seconds, usual in zip(rank_seconds, slowness, strict=True)]
    rank = max(range(len(as_fast)), key=lambda number: as_fast[number])
    share = as_fast[rank] / statistics.median(as_fast) - 1
    return (rank, share) if share > LATE_SHARE else (None, 0.0)
