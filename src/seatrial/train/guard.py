"""What is wrong with a step's numbers, and what to do about it: a function of what all ranks know of it.

A loss or gradient that is not finite has updated nothing (seatrial.train.step), so the step is skipped. Several in a row
mean that the weights went wrong before; so does a loss far above those before it. Training then goes on from the newest
checkpoint whose weights took a sound step, and with the packs after those that led astray.

Every number judged here is the same on all ranks, and in exact mode on any number of them; what is remembered is kept in
the checkpoint. So a training that is resumed judges as one that was never stopped.
"""

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Literal

from seatrial.records import JsonObject
from seatrial.settings import GuardSettings


@dataclass(frozen=True)
class Skipped:
    """Packs of the global stream, from the first to the last, that had no effect on the weights, and why."""

    first_pack: int
    last_pack: int
    why: str


@dataclass(frozen=True)
class Health:
    """What is remembered of the steps so far.

    ``losses``: of the newest sound steps, oldest first. ``rolled_back_to``: the step of the checkpoint that was gone back
    to, until a step is sound again.
    """

    losses: tuple[float, ...] = ()
    bad_in_a_row: int = 0
    rollbacks: int = 0
    rolled_back_to: int | None = None
    skipped: tuple[Skipped, ...] = ()

    def record(self) -> JsonObject:
        """For a checkpoint."""
        return asdict(self)

    @classmethod
    def of(cls, record: JsonObject) -> "Health":
        return cls(
            **{
                **record,
                "losses": tuple(record["losses"]),
                "skipped": tuple(Skipped(**each) for each in record["skipped"]),
            }
        )


@dataclass(frozen=True)
class Fault:
    """``newest``: the last step whose checkpoint may be gone back to; steps done, as checkpoints count them."""

    response: Literal["skip", "roll back"]
    why: str
    newest: int = -1


def judge(
    health: Health, step: int, loss: float, grad_norm: float, settings: GuardSettings, *, packs_per_step: int
) -> tuple[Health, Fault | None]:
    """Health after step ``step`` (from 0) of this loss and gradient norm, and what is wrong with it, if anything.

    A checkpoint of ``n`` steps is good when step ``n``, the first from its weights, was sound.
    """
    if not (math.isfinite(loss) and math.isfinite(grad_norm)):
        why = f"loss {loss}, gradient norm {grad_norm}"
        bad = health.bad_in_a_row + 1
        health = replace(health, bad_in_a_row=bad, skipped=(*health.skipped, _steps(step, step, packs_per_step, why)))
        if bad < settings.max_skips:
            return health, Fault("skip", why)
        return health, _rollback(health, step - bad, f"{bad} steps in a row were not finite, the last: {why}")
    if excess := spike(loss, health.losses, settings):
        return health, _rollback(health, step - 1, excess)
    losses = (*health.losses, loss)[-settings.window_steps :]
    return replace(health, losses=losses, bad_in_a_row=0, rolled_back_to=None), None


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
    return f"loss {loss:.4g}, where the {len(losses)} steps before had {median:.4g} +- {deviation:.2g}"


def after_rollback(
    health: Health, loaded: Health, *, loaded_step: int, step: int, why: str, packs_per_step: int
) -> Health:
    """Health when the weights are those of ``loaded_step`` steps again and step ``step`` is the last one skipped."""
    before = tuple(each for each in health.skipped if each.last_pack < loaded_step * packs_per_step)
    window = _steps(loaded_step, step, packs_per_step, why)
    return Health(loaded.losses, 0, health.rollbacks + 1, loaded_step, (*before, window))


def _rollback(health: Health, newest: int, why: str) -> Fault:
    if health.rolled_back_to is not None:
        newest = min(newest, health.rolled_back_to - 1)  # no step was sound from there
    return Fault("roll back", why, newest)


def _steps(first: int, last: int, packs_per_step: int, why: str) -> Skipped:
    return Skipped(first * packs_per_step, (last + 1) * packs_per_step - 1, why)
