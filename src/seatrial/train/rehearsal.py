"""The very steps of a training on any rows, without its records, saves and judgements: for those who time or compare
them.

Between two worlds of processes a rehearsal may move: the same model, first alone, then among others.
"""

import gc
import math
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import torch

from seatrial.data.dataset import TokenRows
from seatrial.data.pack import PackStream
from seatrial.dist.heartbeat import Heartbeat
from seatrial.dist.parallel import GradientSum
from seatrial.dist.plan import Choice
from seatrial.dist.world import World
from seatrial.errors import SeatrialError
from seatrial.settings import TrainSettings
from seatrial.train.build import build_training, make_fast, prepare_kernels
from seatrial.train.exact import Exactness, choose_exactness, use_kernels
from seatrial.train.flops import Work
from seatrial.train.layout import announce, choose_layout
from seatrial.train.packs import RankPacks
from seatrial.train.step import QueuedStep, StepReport, Training, on_device, queue_step


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """A model on which steps can be taken, and the packs of this rank."""

    settings: TrainSettings
    training: Training
    packs: RankPacks
    choice: Choice
    exactness: Exactness


def prepare(settings: TrainSettings, rows: TokenRows, world: World, *, longest_row: int) -> Rehearsal:
    """Choose kernels and layout, and build the model, as a training with these settings does. Collective.

    Raises:
        ImpossibleConfiguration: no layout fits.
    """
    exactness = choose_exactness(settings, longest_row)
    use_kernels(exactness)
    choice = choose_layout(settings, world, exactness)
    announce(choice, world)
    packs = RankPacks(_stream(settings, rows), rows, 0, world)
    training = build_training(settings, choice.layout, world, order_free=exactness.order_free)
    training = make_fast(training, settings, choice.layout)
    prepare_kernels(training, settings, packs)
    return Rehearsal(settings, training, packs, choice, exactness)


def moved(rehearsal: Rehearsal, world: World, settings: TrainSettings) -> Rehearsal:
    """The same model and compiled code among the processes of ``world``, each of which holds it whole.

    Of a rehearsal that was alone, with gradients in floats: those are what other processes are now told.
    """
    assert rehearsal.packs.world.size == 1 and not rehearsal.exactness.order_free
    training = rehearsal.training
    summed = GradientSum(training.packed, list(training.trainable.values()))
    rows = rehearsal.packs.data
    return replace(
        rehearsal,
        settings=settings,
        training=replace(training, world=world, gradient_sum=summed),
        packs=RankPacks(_stream(settings, rows), rows, 0, world),
    )


def take_steps(rehearsal: Rehearsal, steps: range) -> Iterator[StepReport]:
    """Take steps, one ahead of the one that is told of: the device does one while the host reads the one before.

    Collective: all ranks take the same steps, to the last.
    """
    training, packs = rehearsal.training, rehearsal.packs
    inputs = on_device(packs.of_steps(steps), training.world.device)
    unread: deque[QueuedStep] = deque()
    own_seconds = 0.0
    for step in steps:
        queued = queue_step(
            training,
            step,
            inputs,
            packs.positions(step),
            trained_tokens=packs.work(step).trained_tokens,
            learning_rate=rehearsal.settings.optimizer.learning_rate,
            stop=False,
            hurried=False,
            own_seconds=own_seconds,
            heartbeat=Heartbeat(),
        )
        unread.append(queued)
        while len(unread) > (0 if step == steps[-1] else 1):
            report = unread.popleft().read()
            own_seconds = report.own_seconds
            yield report


def refuse_broken(reports: Iterable[StepReport]) -> None:
    """Raises: SeatrialError: a loss or a norm is not finite, so that what was timed or compared is no training."""
    for report in reports:
        if not math.isfinite(report.loss + report.grad_norm):
            raise SeatrialError(f"step {report.step + 1}: loss {report.loss}, gradient norm {report.grad_norm}")


def work_of(packs: RankPacks, steps: range) -> Work:
    """What some steps consist of, on all ranks."""
    works = [packs.work(step) for step in steps]
    return Work(
        tokens=sum(work.tokens for work in works),
        trained_tokens=sum(work.trained_tokens for work in works),
        squares=sum(work.squares for work in works),
    )


def forget() -> None:
    """Give back what a rehearsal that nobody holds any more had on the GPU, and the code compiled for its shapes."""
    gc.collect()
    torch.compiler.reset()
    torch.cuda.empty_cache()


def _stream(settings: TrainSettings, rows: TokenRows) -> PackStream:
    return PackStream(rows.lengths_N, settings.data.length, settings.run.seed, settings.optimizer.packs_per_step)
