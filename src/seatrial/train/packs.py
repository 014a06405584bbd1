"""What one rank computes of each step: a share of the global plan of packs, known without asking the others."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from seatrial.data.dataset import TokenRows, load_rows
from seatrial.data.pack import Pack, PackStream, Rows, pack_tensors, share
from seatrial.data.render import TrainOn, load_renderer
from seatrial.dist.world import World
from seatrial.model.load import model_directory
from seatrial.model.packed import attention_bounds
from seatrial.records import JsonObject
from seatrial.settings import OptimizerSettings, TrainSettings
from seatrial.train.flops import Work


@dataclass(frozen=True, eq=False)
class RankPacks:
    """The packs of one rank. Steps count from 0."""

    stream: PackStream
    data: TokenRows
    pad_id: int
    world: World

    @cached_property
    def lengths_N(self) -> npt.NDArray[np.int64]:
        return self.data.lengths_N

    @cached_property
    def trained_N(self) -> npt.NDArray[np.int64]:
        return self.data.trained_N

    def steps(self, settings: OptimizerSettings) -> int:
        """Optimizer steps of the whole training."""
        steps = settings.steps or self.stream.steps
        assert steps is not None, "settings hold steps or epochs"
        return steps

    def as_event(self) -> JsonObject:
        """For events.jsonl."""
        data, stream = self.data, self.stream
        return {"rows": len(data.rows), "left_out": data.left_out, "packs_per_epoch": stream.packs_per_epoch}

    def positions(self, step: int) -> list[int]:
        """Where this rank's packs of a step stand in the global stream. As many for every rank."""
        count = self.stream.packs_per_step
        return [
            step * count + self.world.rank + index * self.world.size for index in range(-(-count // self.world.size))
        ]

    def of_step(self, step: int) -> list[tuple[int, Rows, Pack]]:
        """Position, rows and tensors of each of this rank's packs of a step."""
        mine = share(self.stream.step_packs(step), self.world.rank, self.world.size)
        return [(at, rows, self._tensors(rows)) for at, rows in zip(self.positions(step), mine, strict=True)]

    def of_steps(self, steps: Iterable[int]) -> Iterator[Pack]:
        """This rank's packs of several steps, laid out one at a time as they are asked for."""
        for step in steps:
            yield from map(self._tensors, share(self.stream.step_packs(step), self.world.rank, self.world.size))

    def attention_bounds(self) -> set[tuple[int, int]]:
        """What attention is told of all packs there will be, on any rank; see the function of that name.

        Every epoch is packed alike: rows of equal length change places, and nothing else.
        """
        bounds = set()
        for rows in {(), *self.stream.plan(0).packs}:
            lengths = self.lengths_N[list(rows)]
            padding = self.stream.pack_length - int(lengths.sum())  # if any, the last document
            longest = max(int(lengths.max(initial=0)), padding)
            bounds.add(attention_bounds(len(rows) + (padding > 0), longest, self.stream.pack_length))
        return bounds

    def work(self, step: int) -> Work:
        """What a step consists of, on all ranks."""
        rows = [row for pack in self.stream.step_packs(step) for row in pack]
        lengths = self.lengths_N[rows]
        return Work(int(lengths.sum()), int(self.trained_N[rows].sum()), int((lengths**2).sum()))

    def _tensors(self, rows: Rows) -> Pack:
        return pack_tensors([self.data.rows[row] for row in rows], self.stream.pack_length, self.pad_id)


def plan_packs(settings: TrainSettings, world: World) -> RankPacks:
    """The rows that the settings name, tokenised, and the plan of all packs.

    Raises:
        UsageError: the file or its rows cannot be trained on.
    """
    renderer = load_renderer(model_directory(settings.model.path), settings.data.template)
    data = load_rows(
        settings.data.train,
        renderer,
        train_on=TrainOn(settings.data.train_on),
        length=settings.data.length,
        over_long=settings.data.over_long,
    )
    optimizer = settings.optimizer
    stream = PackStream(
        data.lengths_N, settings.data.length, settings.run.seed, optimizer.packs_per_step, optimizer.epochs
    )
    return RankPacks(stream, data, renderer.pad_id, world)
