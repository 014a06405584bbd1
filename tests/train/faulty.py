"""Trainings in which chosen packs go wrong, whichever rank computes them: python -m tests.train.faulty JSON.

As tests.worlds, with ``faults``: pairs of a pack's position and what becomes of it, ``nan`` or ``inf`` in the gradient
of an adapter, or a number that the loss is multiplied with.
"""

import sys
from typing import Any

import torch
from torch import Tensor

from tests.worlds import main

NAMED = "model.layers.1.mlp.down_proj.b_OR"


def break_packs(training: dict[str, Any]) -> None:
    """In this process, before it trains."""
    from seatrial.train import build, diagnose, step
    from seatrial.train.packs import RankPacks

    faults: dict[int, Any] = dict(training["faults"])
    coming: list[int] = []  # positions of the packs that are computed next; -1: one of padding, that fills up a step
    now: list[Any] = [None]
    positions_of, pack_loss, make_fast = RankPacks.positions, step.pack_loss, build.make_fast

    def noting(self: RankPacks, number: int) -> list[int]:
        positions, count = positions_of(self, number), self.stream.packs_per_step
        coming[:] = [at if at // count == number else -1 for at in positions]
        return positions

    def breaking(packed: Any, pack: Any, compute: str) -> Tensor:
        now[0] = faults.get(coming.pop(0))
        loss = pack_loss(packed, pack, compute)
        return loss * now[0] if isinstance(now[0], int | float) else loss

    def hooked(training: Any, *others: Any) -> Any:
        def gone_wrong(gradient: Tensor) -> Tensor:
            if now[0] not in ("nan", "inf"):
                return gradient
            gradient = gradient.clone()
            gradient.view(-1)[3] = torch.tensor(float(now[0]))
            return gradient

        training.trainable[NAMED].register_hook(gone_wrong)
        return make_fast(training, *others)

    for place, name, changed in (
        (sys.modules["seatrial.train.loop"], "make_fast", hooked),
        (RankPacks, "positions", noting),
        (step, "pack_loss", breaking),
        (diagnose, "pack_loss", breaking),
    ):
        setattr(place, name, changed)


if __name__ == "__main__":
    main(break_packs)
