"""Stragglers are named; tight and wide fleets in good health are left alone."""

import random

from hypothesis import given
from hypothesis import strategies as st

from seatrial.accept.fleet import stragglers


def test_the_slow_one_is_named_with_what_it_lacks() -> None:
    values = {f"GPU {i}": 740.0 + i for i in range(8)} | {"GPU 3": 660.0}
    found = stragglers(values)
    assert list(found) == ["GPU 3"]
    assert 0.10 < found["GPU 3"] < 0.12


def test_a_tight_fleet_is_not_accused_of_its_last_percent() -> None:
    assert stragglers({"a": 100.0, "b": 100.0, "c": 100.0, "d": 97.0}) == {}


def test_few_parts_name_nobody() -> None:
    assert stragglers({"a": 100.0, "b": 100.0, "c": 50.0}) == {}


def test_equal_neighbours_do_not_hide_a_straggler() -> None:
    """The spread is zero, and still the slow part is found."""
    assert list(stragglers({"a": 100.0, "b": 100.0, "c": 100.0, "d": 90.0})) == ["d"]


@given(st.integers(4, 512), st.integers(0, 10**6))
def test_healthy_fleets_are_left_alone(parts: int, seed: int) -> None:
    """Within the 5 % by which healthy GPUs differ, nobody is accused, whatever the shape of the spread."""
    draw = random.Random(seed)
    values = {str(part): draw.uniform(0.975, 1.025) for part in range(parts)}
    assert stragglers(values) == {}


@given(st.lists(st.floats(1.0, 1e6), max_size=20))
def test_whoever_is_named_lacks_at_least_five_percent(values: list[float]) -> None:
    found = stragglers({str(index): value for index, value in enumerate(values)})
    assert all(0.05 < lack <= 1 for lack in found.values())
    assert len(found) * 2 <= len(values)
