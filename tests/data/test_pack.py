"""The pack plan is a partition of the rows, whatever the number of processes."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.data.pack import IGNORED, PackStream, fingerprint, pack_tensors, plan_epoch, share
from seatrial.data.render import Rendered
from seatrial.errors import UsageError

LENGTHS = st.lists(st.integers(1, 64), max_size=200)


def rendered(length: int, trained: int = 0, first_id: int = 1) -> Rendered:
    """``length`` different tokens of which the last ``trained`` carry loss."""
    ids = np.arange(first_id, first_id + length, dtype=np.int32)
    return Rendered(ids, np.arange(length) >= length - trained)


@given(LENGTHS, st.integers(0, 5), st.integers(0, 3))
def test_plan_covers_every_row_once_and_no_pack_overflows(lengths: list[int], seed: int, epoch: int) -> None:
    plan = plan_epoch(lengths, 64, seed=seed, epoch=epoch)
    assert sorted(row for pack in plan.packs for row in pack) == list(range(len(lengths)))
    assert all(pack and sum(lengths[row] for row in pack) <= 64 for pack in plan.packs)


@given(LENGTHS)
def test_no_two_packs_could_have_been_one(lengths: list[int]) -> None:
    packs = plan_epoch(lengths, 64, seed=0, epoch=0).packs
    emptiest_first = sorted(sum(lengths[row] for row in pack) for pack in packs)
    assert all(sum(pair) > 64 for pair in itertools.pairwise(emptiest_first))


def test_each_epoch_is_another_order_and_the_same_number_of_packs() -> None:
    lengths = np.random.default_rng(0).integers(1, 64, 500)
    first, second = (plan_epoch(lengths, 64, seed=3, epoch=epoch) for epoch in (0, 1))
    assert first.packs != second.packs
    assert len(first.packs) == len(second.packs)
    assert first == plan_epoch(lengths, 64, seed=3, epoch=0)


def test_sixty_thousand_rows_are_planned_in_seconds_with_little_padding() -> None:
    lengths = np.clip(np.random.default_rng(0).lognormal(6.1, 0.45, 60_000).astype(int), 100, 4000)
    start = time.perf_counter()
    plan = plan_epoch(lengths, 4096, seed=0, epoch=0)
    assert time.perf_counter() - start < 5
    assert plan.efficiency > 0.97


@pytest.mark.parametrize("length", [0, 65])
def test_rows_that_fit_no_pack_are_refused(length: int) -> None:
    with pytest.raises(UsageError, match=f"row 1 has {length} tokens"):
        plan_epoch([3, length], 64, seed=0, epoch=0)


@given(st.lists(st.integers(1, 64), min_size=1, max_size=60), st.integers(1, 5), st.integers(1, 3))
def test_steps_consume_each_epoch_whole_and_in_order(lengths: list[int], packs_per_step: int, epochs: int) -> None:
    stream = PackStream(np.asarray(lengths), 64, 0, packs_per_step, epochs)
    assert stream.steps is not None
    consumed = [pack for step in range(stream.steps) for pack in stream.step_packs(step)]
    planned = [pack for epoch in range(epochs) for pack in plan_epoch(lengths, 64, seed=0, epoch=epoch).packs]
    assert len(consumed) == stream.steps * packs_per_step
    assert consumed[: len(planned)] == planned
    assert all(pack == () for pack in consumed[len(planned) :])
    assert len(consumed) - len(planned) < packs_per_step


def test_an_endless_stream_runs_on_into_the_next_epoch() -> None:
    stream = PackStream(np.asarray([60, 61, 62]), 64, 0, packs_per_step=2)
    assert stream.steps is None
    rows = [row for step in range(6) for pack in stream.step_packs(step) for row in pack]
    assert [sorted(rows[i : i + 3]) for i in range(0, 12, 3)] == [[0, 1, 2]] * 4


@given(st.lists(st.lists(st.integers(0, 9), min_size=1).map(tuple), max_size=20), st.integers(1, 7))
def test_ranks_share_a_step_equally_and_without_loss(packs: list[tuple[int, ...]], world_size: int) -> None:
    shares = [share(packs, rank, world_size) for rank in range(world_size)]
    assert len({len(mine) for mine in shares}) == 1
    assert sorted(pack for mine in shares for pack in mine if pack) == sorted(packs)


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(0, 12)), max_size=5))
def test_no_target_crosses_a_document_border(shapes: list[tuple[int, int]]) -> None:
    rows = [rendered(length, min(trained, length), 100 * i + 1) for i, (length, trained) in enumerate(shapes)]
    pack = pack_tensors(rows, 64, pad_id=0)
    borders = pack.cu_seqlens.tolist()
    assert borders[0] == 0
    assert borders[-1] == 64
    assert borders == sorted(set(borders))
    assert pack.max_seqlen == max(np.diff(borders))
    for row, start, end in zip(rows, borders, borders[1:], strict=False):
        assert pack.ids_T[start:end].tolist() == row.ids.tolist()
        assert pack.positions_T[start:end].tolist() == list(range(end - start))
        wanted = [int(row.ids[t]) if row.trained[t] else IGNORED for t in range(1, len(row.ids))]
        assert pack.targets_T[start:end].tolist() == [*wanted, IGNORED]
    tokens = sum(len(row.ids) for row in rows)
    assert pack.tokens == tokens
    assert pack.ids_T[tokens:].tolist() == [0] * (64 - tokens)
    assert pack.targets_T[tokens:].tolist() == [IGNORED] * (64 - tokens)
    assert pack.trained_tokens == int((pack.targets_T != IGNORED).sum())


def test_rows_too_long_for_a_pack_are_an_error() -> None:
    with pytest.raises(ValueError, match="70 tokens do not fit"):
        pack_tensors([rendered(40), rendered(30)], 64, pad_id=0)


def test_fingerprint_sees_tokens_targets_borders_and_settings() -> None:
    rows = [rendered(5, 2), rendered(3, 1)]
    prints = {
        fingerprint(rows, {"seed": 0}),
        fingerprint(rows, {"seed": 1}),
        fingerprint(rows[::-1], {"seed": 0}),
        fingerprint([rendered(5, 3), rendered(3, 1)], {"seed": 0}),
        fingerprint([rendered(5, 2), rendered(3, 1, first_id=2)], {"seed": 0}),
    }
    assert len(prints) == 5
    assert fingerprint(rows, {"seed": 0}) == fingerprint([rendered(5, 2), rendered(3, 1)], {"seed": 0})
