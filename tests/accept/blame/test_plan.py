"""Who plays whom: disjoint pairs, everybody meets, known-good partners."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.accept.blame.plan import WHOLE_UP_TO, confirmations, tournament


@given(st.sets(st.integers(0, 600), min_size=2, max_size=WHOLE_UP_TO), st.integers(0, 9))
def test_in_a_whole_tournament_everybody_meets_everybody_once(nodes: set[int], seed: int) -> None:
    rounds = tournament(sorted(nodes), seed)
    assert len(rounds) == len(nodes) - 1 + len(nodes) % 2
    assert sorted(pair for round_ in rounds for pair in round_) == sorted(combinations(sorted(nodes), 2))


@given(st.integers(WHOLE_UP_TO + 1, 600), st.integers(0, 9))
def test_many_nodes_play_some_rounds_each_with_another_partner(nodes: int, seed: int) -> None:
    rounds = tournament(range(nodes), seed)
    assert len(rounds) <= 13
    pairs = [pair for round_ in rounds for pair in round_]
    assert len(set(pairs)) == len(pairs)
    for round_ in rounds:
        players = [node for pair in round_ for node in pair]
        assert len(set(players)) == len(players) == nodes - nodes % 2


def test_512_nodes_play_12_rounds() -> None:
    assert [len(round_) for round_ in tournament(range(512))] == [256] * 12


@pytest.mark.parametrize("nodes", [0, 1])
def test_alone_there_is_no_tournament(nodes: int) -> None:
    assert tournament(range(nodes)) == ()


@given(st.integers(1, 20), st.integers(2, 40), st.integers(1, 10))
def test_suspects_meet_different_known_good_nodes(suspects: int, good: int, partners: int) -> None:
    accused, trusted = list(range(100, 100 + suspects)), list(range(good))
    plans = confirmations(accused, trusted, partners)
    met: dict[int, set[int]] = {node: set() for node in accused}
    for plan in plans:
        players = [node for pair in plan.round for node in pair]
        assert len(set(players)) == len(players)
        for suspect, partner in plan.suspects:
            assert partner in trusted and partner not in met[suspect]
            met[suspect].add(partner)
        assert all(node in trusted for pair in plan.controls for node in pair)
    assert all(len(seen) == min(partners, good) for seen in met.values())
