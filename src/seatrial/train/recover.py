"""What is done about a step whose numbers are wrong. All ranks do it, at the same step."""

from seatrial.dist.checkpoint.checkpoints import Checkpoints
from seatrial.errors import SeatrialError
from seatrial.rundir import RunDir
from seatrial.settings import GuardSettings
from seatrial.train.diagnose import first_non_finite
from seatrial.train.guard import Fault, Health, after_rollback, of_progress
from seatrial.train.packs import RankPacks
from seatrial.train.step import StepReport, Training


def recover(
    fault: Fault,
    health: Health,
    report: StepReport,
    settings: GuardSettings,
    training: Training,
    packs: RankPacks,
    checkpoints: Checkpoints,
    run: RunDir,
) -> tuple[Health, int]:
    """Leave the weights to go on with, and say what happened: health from now on, and which step is the next.

    Collective.

    Raises:
        SeatrialError: training went wrong too often, or before there was a checkpoint to go back to.
    """
    count, done, first = packs.stream.packs_per_step, report.step + 1, training.world.is_first
    checkpoints.forget()
    why = fault.why
    if bool(training.unsound):
        # From the very weights that it began with: neither it nor the step queued behind it has updated them.
        why += f"; {first_non_finite(training, packs.of_step(report.step))}"
        training.unsound.zero_()
    if fault.response == "skip":
        if first:
            run.event("skip", step=done, packs=[report.step * count, done * count - 1], reason=why)
        return health, done

    if health.rollbacks == settings.max_rollbacks:
        raise SeatrialError(
            f"step {done}: {why}; training was rolled back {health.rollbacks} times already (guard.max_rollbacks); "
            "see the events skip and rollback, and try a lower optimizer.learning_rate"
        )
    progress = checkpoints.roll_back(fault.to)
    if progress is None:
        raise SeatrialError(f"step {done}: {why}; there is no checkpoint from before training went wrong to go back to")
    loaded_step, loaded = of_progress(progress)
    if first:
        skipped = [fault.to * count, done * count - 1]
        run.event("rollback", step=done, to=fault.to, loaded=loaded_step, packs=skipped, reason=why)
    health = after_rollback(health, loaded, fault, step=report.step)
    return health, health.next_step(loaded_step)
