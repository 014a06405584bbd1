"""Random rows are as long as they are said to be."""

import numpy as np
import pytest

from seatrial.data.random_rows import Lengths, random_rows


def test_fixed_rows_fill_packs() -> None:
    rows = random_rows("fixed", length=512, tokens=8192, vocabulary=1000, seed=1)
    assert rows.lengths_N.tolist() == [512] * 16
    assert rows.trained_N.tolist() == [511] * 16  # the first token is predicted from nothing


def test_tool_calls_follow_the_profile() -> None:
    rows = random_rows("tool-calls", length=4096, tokens=400_000, vocabulary=1000, seed=1)
    lengths = rows.lengths_N
    assert 400_000 <= lengths.sum() < 403_000
    assert 300 < np.median(lengths) < 370
    assert lengths.max() <= 2492
    assert 0.38 < float(rows.trained_N.sum()) / float(lengths.sum()) < 0.5
    assert max(int(row.ids.max()) for row in rows.rows) < 1000


def test_rows_longer_than_asked_for_are_left_out() -> None:
    rows = random_rows("tool-calls", length=256, tokens=20_000, vocabulary=1000, seed=1)
    assert rows.lengths_N.max() <= 256
    assert rows.lengths_N.sum() >= 20_000


@pytest.mark.parametrize("kind", ["fixed", "tool-calls"])
def test_rows_are_the_same_on_every_rank(kind: Lengths) -> None:
    one, other = (random_rows(kind, length=300, tokens=3000, vocabulary=99, seed=5) for _ in range(2))
    assert one.fingerprint(length=300, seed=0) == other.fingerprint(length=300, seed=0)
