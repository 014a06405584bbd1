"""A pool gives what a loop gives, in the same order."""

import operator

import pytest

from seatrial.data import pool


@pytest.mark.parametrize("rows", [0, 1, 7, 1300])
@pytest.mark.parametrize("worth", [1, 10_000])
def test_results_come_in_the_order_of_the_rows(rows: int, worth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_ROWS_WORTH_A_POOL", worth)
    monkeypatch.setattr(pool, "usable_cpus", lambda: 2)
    assert list(pool.map_rows(operator.add, 5, iter(range(rows)))) == list(range(5, rows + 5))


def test_errors_in_a_process_reach_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_ROWS_WORTH_A_POOL", 1)
    monkeypatch.setattr(pool, "usable_cpus", lambda: 2)
    with pytest.raises(ZeroDivisionError):
        list(pool.map_rows(operator.floordiv, 5, [1, 0]))
