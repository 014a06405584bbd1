"""A world of one, a run directory, and saves into it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from seatrial.dist.checkpoint.checkpoints import Checkpoints
from seatrial.dist.world import World, joined_world
from seatrial.rundir import RunDir
from seatrial.settings import CheckpointSettings

Opener = Callable[..., Checkpoints]


@pytest.fixture
def world() -> Iterator[World]:
    with joined_world(timeout_seconds=20) as joined:
        yield joined


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path)
    run.prepare()
    return run


def state_of(value: float) -> dict[str, Tensor]:
    return {"weight/a": torch.full((300, 7), value), "step/a": torch.tensor(value)}


@pytest.fixture
def opened(run: RunDir, world: World) -> Iterator[Opener]:
    """Makes checkpoints of a state; they are closed when the test ends."""
    with ExitStack() as stack:

        def make(state: dict[str, Tensor], **settings: Any) -> Checkpoints:
            identity = settings.pop("identity", None)
            values = CheckpointSettings.model_validate(settings)
            return stack.enter_context(Checkpoints(run, world, state, values, identity=identity, stall_seconds=20))

        yield make


def save(checkpoints: Checkpoints, state: dict[str, Tensor], *steps: int) -> str:
    """Save the step's own number as the state of each step; why the last one failed."""
    failure = ""
    for step in steps:
        for tensor in state.values():
            tensor.fill_(step)
        checkpoints.stage(step)
        checkpoints.write({"step": step})
        failure = checkpoints.wait()
    return failure
