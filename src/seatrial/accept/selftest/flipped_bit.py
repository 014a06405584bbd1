"""A rank that trains as the others do, but for one bit of one number in one step: as a GPU that errs in silence."""

from pathlib import Path
from typing import Any

from seatrial.accept.training import replay
from seatrial.accept.training.crew import Phase

CULPRIT, STEP = 1, 2


def flipping(rank: int, folder: Path, asked: object) -> tuple[Phase, Phase]:
    """The replay of :mod:`seatrial.accept.training.replay`, damaged on one rank."""
    if rank == CULPRIT:
        import torch

        from seatrial.train import rehearsal

        honest = vars(rehearsal)["queue_step"]

        def queue_step(training: Any, step: int, *others: Any, **named: Any) -> Any:
            queued = honest(training, step, *others, **named)
            if step == STEP:
                weight = next(iter(training.trainable.values())).data
                weight.view(torch.int32).view(-1)[0] ^= 1
            return queued

        vars(rehearsal)["queue_step"] = queue_step
    return replay.replay(rank, folder, asked)
