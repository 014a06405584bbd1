"""What is wrong with a step's numbers, and what to do about it: a function of what all ranks know of it.

A loss or gradient that is not finite has updated nothing (seatrial.train.step), so the step is skipped. Several in a
row mean that the weights went wrong before; so does a loss far above those before it. Then training goes back to the
last weights that are known to be good, and on with the packs after those that led astray (as A. Chowdhery et al.,
arXiv 2204.02311, section 5.1, did by hand).

How far back does not depend on which checkpoints there are: from an older one, the steps up to there are done again.
Every number judged here is the same on all ranks, and in exact mode on any number of them; what is remembered is kept
in the checkpoints. So a training that is killed and resumed judges as one that was never stopped.

Steps count from 0. "The weights of n steps" are those that step n begins with.
"""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal, Protocol

from seatrial.records import JsonObject
from seatrial.settings import GuardSettings


@dataclass(frozen=True)
class Skipped:
    """Steps, from the first to the last, whose packs had no effect on the weights that were gone on with, and why."""

    first: int
    last: int
    why: str


@dataclass(frozen=True)
class Health:
    """What is remembered of the steps so far. ``losses``: of the newest sound ones, oldest first."""

    losses: tuple[float, ...] = ()
    bad_in_a_row: int = 0
    rollbacks: int = 0
    skipped: tuple[Skipped, ...] = ()

    def next_step(self, step: int) -> int:
        """``step``, or the first one after it that is not skipped."""
        for window in self.skipped:  # in order, and apart
            if window.first <= step <= window.last:
                step = window.last + 1
        return step

    def steps(self, first: int, end: int) -> Iterator[int]:
        """From ``first`` to the one before ``end``, without those skipped."""
        while (first := self.next_step(first)) < end:
            yield first
            first += 1


@dataclass(frozen=True)
class Fault:
    """What to do about a step. ``to``: whose weights to go back to, in steps; negative where there are none."""

    response: Literal["skip", "roll back"]
    why: str
    to: int = -1


class Told(Protocol):
    """What all ranks know of a step."""

    @property
    def step(self) -> int: ...
    @property
    def loss(self) -> float: ...
    @property
    def grad_norm(self) -> float: ...


def judge(health: Health, told: Told, settings: GuardSettings) -> tuple[Health, Fault | None]:
    """Health after a step, and what is wrong with the step, if anything.

    The weights of n steps are good when step n was sound: bad ones show in the first loss or gradient they give.
    """
    step, loss = told.step, told.loss
    if not (math.isfinite(loss) and math.isfinite(told.grad_norm)):
        why = f"loss {loss}, gradient norm {told.grad_norm}"
        bad = health.bad_in_a_row + 1
        if bad >= settings.max_skips:
            return health, _rollback(health, step - bad + 1, f"{bad} steps in a row not finite, the last with {why}")
        skipped = (*health.skipped, Skipped(step, step, why))
        return replace(health, bad_in_a_row=bad, skipped=skipped), Fault("skip", why)
    if excess := spike(loss, health.losses, settings):
        return health, _rollback(health, step, excess)
    return replace(health, losses=(*health.losses, loss)[-settings.window_steps :], bad_in_a_row=0), None


def spike(loss: float, losses: Sequence[float], settings: GuardSettings) -> str:
    """Says how far the loss is above those before it, if that is too far; empty otherwise.

    Too far is both: more than ``spike_nats`` above their median, and more than ``spike_z`` standard deviations, which
    are estimated as 1.4826 times the median absolute deviation (P. J. Rousseeuw and C. Croux, JASA 88, 1993), so that
    outliers do not widen them. There is none before ``window_steps`` losses are known.
    """
    if settings.spike_z is None or len(losses) < settings.window_steps:
        return ""
    median = statistics.median(losses)
    deviation = 1.4826 * statistics.median(abs(other - median) for other in losses)
    if loss - median <= max(settings.spike_nats, settings.spike_z * deviation):
        return ""
    return f"loss {loss:.4g}, where the {len(losses)} sound steps before had {median:.4g} +- {deviation:.2g}"


def after_rollback(health: Health, loaded: Health, fault: Fault, *, step: int) -> Health:
    """Health when a checkpoint was loaded to go back, ``step`` being the last one that led astray.

    The steps from the checkpoint to the weights that are gone back to are not skipped: they are done again.
    """
    before = tuple(window for window in health.skipped if window.last < fault.to)
    return replace(loaded, rollbacks=health.rollbacks + 1, skipped=(*before, Skipped(fault.to, step, fault.why)))


def as_progress(done: int, health: Health) -> JsonObject:
    """How far a training has come: what a checkpoint says beside its tensors."""
    return {"step": done, "health": asdict(health)}


def of_progress(progress: JsonObject) -> tuple[int, Health]:
    """What :func:`as_progress` was given."""
    health = progress["health"]
    skipped = tuple(Skipped(**window) for window in health["skipped"])
    return progress["step"], Health(tuple(health["losses"]), health["bad_in_a_row"], health["rollbacks"], skipped)


def _rollback(health: Health, first_bad: int, why: str) -> Fault:
    to = first_bad - 1
    for window in reversed(health.skipped):
        if window.first <= to <= window.last:  # no step was sound since: its weights are those of window.first steps
            to = window.first - 1
    return Fault("roll back", why, to)
