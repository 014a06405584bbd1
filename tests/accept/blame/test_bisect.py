"""Faults that show only in large groups."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.accept.blame.bisect import Group, Measure, bisect


def slow_when(culprit: int, size: int, calls: list[int] | None = None) -> Measure:
    """A group is slow when it holds the culprit and is at least so large."""

    def measure(groups: Sequence[Group]) -> list[bool]:
        if calls is not None:
            calls.append(len(groups))
        return [culprit in group and len(group) >= size for group in groups]

    return measure


@given(st.integers(3, 200), st.integers(2, 20), st.data())
def test_nobody_but_the_culprit_is_accused(nodes: int, size: int, data: st.DataObject) -> None:
    """Where leaving out anybody makes the group too small for the fault, only the group is known."""
    culprit = data.draw(st.integers(0, nodes - 1))
    found = bisect(range(nodes), slow_when(culprit, size))
    if nodes < size:
        assert found is None
        return
    assert found is not None and culprit in found.group
    assert found.culprits in ((), (culprit,))
    assert found.culprits or len(found.group) * 7 // 8 - 1 < size


@pytest.mark.parametrize("needed", [150, 200, 220])
def test_a_fault_that_needs_most_of_the_nodes(needed: int) -> None:
    calls: list[int] = []
    found = bisect(range(256), slow_when(37, needed, calls))
    assert found is not None and found.culprits == (37,)
    assert found.group == tuple(range(256)) and found.sound_size == 128
    assert len(calls) < 200


def test_a_fault_of_the_fabric_has_no_culprit() -> None:
    """Any 200 nodes are slow together, whoever they are."""
    found = bisect(range(256), lambda groups: [len(group) >= 200 for group in groups])
    assert found is not None and found.culprits == ()
    assert (len(found.group), found.sound_size) == (256, 128)


def test_a_sound_whole_and_one_moment_of_congestion_accuse_nobody() -> None:
    looks = iter([True, False, False])
    assert bisect(range(64), lambda groups: [next(looks) for _ in groups]) is None
