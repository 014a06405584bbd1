"""Training, from settings to a model, in one function that can be read top to bottom.

Shapes: B = 1, T tokens of a pack, S trained positions among them.
"""

from collections import deque
from pathlib import Path

from seatrial.dist.checkpoint.checkpoints import Checkpoints
from seatrial.dist.watchdog.start import watched_rank
from seatrial.dist.world import joined_world
from seatrial.rundir import RunDir
from seatrial.settings import TrainSettings
from seatrial.stop import stop_requests
from seatrial.train.build import build_training, make_fast, prepare_kernels, refuse_leaking_attention
from seatrial.train.exact import choose_exactness, use_kernels
from seatrial.train.fingerprint import bits_fingerprint
from seatrial.train.guard import Health, as_progress, judge, of_progress
from seatrial.train.layout import announce, choose_layout
from seatrial.train.lifecycle import NO_TIME, end_with, open_run, tell_beginning, write_result
from seatrial.train.meter import open_meter
from seatrial.train.optimizer import learning_rate, training_state
from seatrial.train.origin import start_from
from seatrial.train.packs import plan_packs
from seatrial.train.recover import recover
from seatrial.train.saving import adapter_file, identity
from seatrial.train.step import QueuedStep, on_device, queue_step


def train(settings: TrainSettings, *, fresh: bool = False, fork: Path | None = None) -> None:
    """Train to the end, from the newest valid checkpoint to an adapter or a whole model. All ranks run this.

    Args:
        fresh: begin again; a run that is there is moved aside.
        fork: begin with the newest weights of this other run.

    Raises:
        Preempted: asked to stop; a checkpoint of this very step is committed.
        UsageError: the settings, the data or the run directory do not allow a training.
        SeatrialError: the numbers went wrong, and going back did not help or was not possible.
    """
    run = RunDir(settings.run.dir)
    with (
        joined_world(timeout_seconds=settings.run.timeout_seconds, run=run.path) as world,
        stop_requests(run.stop_file, at_once=True) as stop,
        open_run(run, settings, world, fresh=fresh) as attempt,
        watched_rank(run.path, world, attempt=attempt, hang_seconds=settings.run.hang_seconds) as heartbeat,
        stop.answered(),
    ):
        heartbeat.phase("data")
        packs = plan_packs(settings, world)  # the same rows, in the same order, on every rank
        steps = packs.steps(settings.optimizer)
        exactness = choose_exactness(settings, int(packs.lengths_N.max()))
        use_kernels(exactness)
        choice = choose_layout(settings, world, exactness)
        announce(choice, world)
        heartbeat.phase("load")
        training = build_training(settings, choice.layout, world, order_free=exactness.order_free)
        state = training_state(training.trainable, training.optimizer)

        with Checkpoints(
            run,
            world,
            state,
            settings.checkpoint,
            identity=identity(settings, packs.data),
            fingerprint=bits_fingerprint(world, choice.layout, exactness),
            whole_file=adapter_file(training.model, training.trainable, settings),
            heartbeat=heartbeat,
            stall_seconds=settings.run.timeout_seconds,
        ) as checkpoints:
            progress = checkpoints.load_latest()
            if progress is None and fork is not None:
                start_from(checkpoints, RunDir(fork), run, world, as_progress(0, Health()))
            first, health = (0, Health()) if progress is None else of_progress(progress)
            tell_beginning(run, training, packs, choice, exactness, step=first, attempt=attempt)

            heartbeat.phase("compile")
            refuse_leaking_attention(training, settings, packs.data, packs.pad_id)
            training = make_fast(training, settings, choice.layout)
            prepare_kernels(training, settings, packs)
            meter = open_meter(run, settings, training, packs, steps=steps, attempt=attempt)
            inputs = on_device(packs.of_steps(health.steps(first, steps)), world.device)
            unread: deque[QueuedStep] = deque()
            done, stopping, own_seconds = first, False, 0.0

            while done < steps:
                heartbeat.phase("step" if done > first else "compile", done)
                queued = queue_step(
                    training,
                    done,
                    inputs,
                    packs.positions(done),
                    trained_tokens=packs.work(done).trained_tokens,
                    learning_rate=learning_rate(done, steps, settings.optimizer),
                    stop=bool(stop.reason),
                    hurried=not stop.has_time_for(checkpoints.expected_seconds, settings.run.grace_seconds),
                    own_seconds=own_seconds,
                    heartbeat=heartbeat,
                    save_due=checkpoints.due_by_time(),
                    saving=checkpoints.busy,
                    copied=checkpoints.copied,
                )
                unread.append(queued)
                done = health.next_step(done + 1)

                # The device has this step to do while the host reads how the one before it went.
                while len(unread) > (0 if done == steps or stopping else 1):
                    report = unread.popleft().read()
                    stop.has_read_a_step()
                    stopping, own_seconds = stopping or report.stopping, report.own_seconds
                    health, fault = judge(health, report, settings.guard)
                    if fault is not None:
                        health, done = recover(fault, health, report, settings.guard, training, packs, checkpoints, run)
                        inputs = on_device(packs.of_steps(health.steps(done, steps)), world.device)
                        unread.clear()  # what was queued behind it changed nothing that stays
                    elif meter is not None:
                        meter.write(report, learning_rate(report.step, steps, settings.optimizer))
                    reached = health.next_step(report.step + 1)
                    checkpoints.confirm(reached, as_progress(reached, health), report.save_due, report.saving)

                if done == steps or stopping:
                    failure = checkpoints.save(done, as_progress(done, health)) if not report.hurried else NO_TIME
                    end_with(failure, done, steps, stop.reason or "asked on another rank")
                elif unread:
                    checkpoints.stage_if_due(done)

            heartbeat.phase("export")
            write_result(run, settings, training.model, training.trainable, world)
