"""Training, from settings to a model, in one function that can be read top to bottom.

Shapes: B = 1, T tokens of a pack, S trained positions among them.
"""

from collections import deque
from dataclasses import asdict

from seatrial.dist.checkpoint.checkpoints import Checkpoints
from seatrial.dist.stop import stop_requests
from seatrial.dist.world import joined_world
from seatrial.rundir import RunDir
from seatrial.settings import TrainSettings
from seatrial.train.build import build_training, make_fast, prepare_kernels, refuse_leaking_attention
from seatrial.train.diagnose import refuse_non_finite
from seatrial.train.exact import choose_exactness, use_kernels
from seatrial.train.layout import announce, as_event, choose_layout
from seatrial.train.lifecycle import end_with, open_run, write_result
from seatrial.train.meter import open_meter
from seatrial.train.optimizer import learning_rate, training_state
from seatrial.train.packs import plan_packs
from seatrial.train.saving import adapter_file, identity
from seatrial.train.step import QueuedStep, on_device, queue_step


def train(settings: TrainSettings) -> None:
    """Train to the end, resuming from the newest valid checkpoint. All ranks run this.

    Leaves an adapter (or a whole model) in the run directory.

    Raises:
        Preempted: asked to stop; a checkpoint of this very step is committed.
        UsageError: the settings, the data or the run directory do not allow a training.
        SeatrialError: a loss or a gradient is not finite.
    """
    run = RunDir(settings.run.dir)
    with joined_world(timeout_seconds=settings.run.timeout_seconds) as world, stop_requests(run.stop_file) as stop:
        packs = plan_packs(settings, world)  # the same rows, in the same order, on every rank
        steps = packs.steps(settings.optimizer)
        exactness = choose_exactness(settings, int(packs.lengths_N.max()))
        use_kernels(exactness)
        choice = choose_layout(settings, world, exactness)
        announce(choice, world)
        training = build_training(settings, choice.layout, world, order_free=exactness.order_free)
        state = training_state(training.trainable, training.optimizer)

        with (
            open_run(run, settings, world) as attempt,
            Checkpoints(
                run,
                world,
                state,
                settings.checkpoint,
                identity=identity(settings, packs.data),
                whole_file=adapter_file(training.model, training.trainable, settings),
                stall_seconds=settings.run.timeout_seconds,
            ) as checkpoints,
        ):
            # Where we left off.
            progress = checkpoints.load_latest()
            first = int(progress["step"]) if progress is not None else 0
            if world.is_first:
                run.event("layout", **as_event(choice))
                run.event("loaded", **asdict(training.filled))
                run.event("exact", promise=exactness.promise, why=exactness.why)
                run.event("data", **packs.as_event())
                if first:
                    run.event("resume", step=first, attempt=attempt)

            refuse_leaking_attention(training, settings, packs.data, packs.pad_id)
            training = make_fast(training, settings, choice.layout)
            prepare_kernels(training, settings, packs)
            meter = open_meter(run, settings, training, packs, steps=steps, attempt=attempt) if world.is_first else None
            inputs = on_device(packs.of_steps(range(first, steps)), world.device)
            unread: deque[QueuedStep] = deque()
            stopping, own_seconds = False, 0.0

            for step in range(first, steps):
                done = step + 1
                queued = queue_step(
                    training,
                    step,
                    inputs,
                    packs.positions(step),
                    trained_tokens=packs.work(step).trained_tokens,
                    learning_rate=learning_rate(step, steps, settings.optimizer),
                    stop=bool(stop.reason),
                    own_seconds=own_seconds,
                    save_due=checkpoints.due_by_time(),
                    saving=checkpoints.busy,
                    copied=checkpoints.copied,
                )
                unread.append(queued)

                # The device has this step to do while the host reads how the one before it went.
                while len(unread) > (0 if done == steps or stopping else 1):
                    report = unread.popleft().read()
                    refuse_non_finite(report, training, packs)
                    if meter is not None:
                        meter.write(report, learning_rate(report.step, steps, settings.optimizer))
                    stopping, own_seconds = stopping or report.stopping, report.own_seconds
                    checkpoints.confirm(report.step + 1, {"step": report.step + 1}, report.save_due, report.saving)

                if done == steps or stopping:
                    failure = checkpoints.save(done, {"step": done})
                    end_with(failure, done, steps, stop.reason or "asked on another rank")
                else:
                    checkpoints.stage_if_due(done)

            write_result(run, settings, training.model, training.trainable, world)
