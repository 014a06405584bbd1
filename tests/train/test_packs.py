"""A rank's packs."""

from collections.abc import Sequence

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.data.dataset import TokenRows
from seatrial.data.pack import PackStream
from seatrial.data.render import Rendered
from seatrial.dist.world import World
from seatrial.model.packed import attention_bounds
from seatrial.train.packs import RankPacks

LENGTH = 40


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, LENGTH), min_size=1, max_size=30))
def test_what_attention_is_told_is_known_before_the_first_step(lengths: Sequence[int]) -> None:
    """Of every pack of two epochs and of those that fill up the last step."""
    rows = tuple(Rendered(np.arange(n, dtype=np.int32), np.ones(n, dtype=np.bool_)) for n in lengths)
    stream = PackStream(np.array(lengths), LENGTH, seed=3, packs_per_step=4, epochs=2)
    packs = RankPacks(stream, TokenRows(rows, {}), 0, World(0, 1, torch.device("cpu")))
    assert stream.steps is not None
    seen = {
        attention_bounds(len(pack.cu_seqlens) - 1, pack.max_seqlen, LENGTH)
        for pack in packs.of_steps(range(stream.steps + 1))
    }
    assert seen == packs.attention_bounds()
