"""Rounds of a suspect beside rounds of controls: exact odds, and the line that both are held against."""

from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.accept.blame.bouts import Bouts
from seatrial.accept.blame.decode import judge_beside_controls, low_rails, more_often, within_bouts, worst_ports
from seatrial.accept.blame.plan import Round

ROUNDS, REPEATS = 16, 12
SUSPECT: Round = ((0, 1),)
CONTROLS: Round = ((1, 2),)


def bouts(pairs: Round, rate_TR: np.ndarray) -> Bouts:
    return Bouts.joined([Bouts.of_round(turn, pairs, rate_R.reshape(1, 1, -1)) for turn, rate_R in enumerate(rate_TR)])


def judged(own_TR: np.ndarray, others_TR: np.ndarray) -> str:
    own, others = bouts(SUSPECT, own_TR), bouts(CONTROLS, others_TR)
    none_M = np.zeros(len(own.rate_M), dtype=bool), np.zeros(len(others.rate_M), dtype=bool)
    return judge_beside_controls(own, none_M[0], others, none_M[1]).kind


def noise(seed: int, spread: float) -> np.ndarray:
    return np.exp(np.random.default_rng(seed).normal(0, spread, (ROUNDS, REPEATS)))


def rounds(bad: int, total: int) -> np.ndarray:
    return np.arange(total) < bad


def test_lady_tasting_tea() -> None:
    """Fisher's own example: all four of four, out of eight, come by chance once in seventy."""
    assert not more_often(rounds(4, 4), rounds(0, 4))
    assert comb(8, 4) == 70
    assert more_often(rounds(8, 8), rounds(0, 8)) and 1 / comb(16, 8) < 1e-3


@given(st.integers(1, 30), st.integers(0, 30), st.data())
def test_those_who_are_no_worse_are_never_told_apart(total: int, others: int, data: st.DataObject) -> None:
    bad = data.draw(st.integers(0, total))
    others_bad = data.draw(st.integers(-(-bad * others // total), others))
    assert not more_often(rounds(bad, total), rounds(others_bad, others))


def test_one_of_a_thousand_equals_is_told_apart() -> None:
    """The test's size, by drawing: both from one bag, of which a third is bad."""
    draw = np.random.default_rng(0)
    told = sum(more_often(draw.random(16) < 0.33, draw.random(16) < 0.33) for _ in range(4000))
    assert told <= 12


@pytest.mark.parametrize("spread", [0.01, 0.3, 0.8])
def test_what_scatters_like_its_controls_is_sound(spread: float) -> None:
    for seed in range(50):
        assert judged(noise(2 * seed, spread), noise(2 * seed + 1, spread)) == "sound"


@pytest.mark.parametrize("left", [0.9, 0.5, 0.0, np.nan])
def test_what_is_slow_in_every_measurement_is_steady(left: float) -> None:
    for seed in range(20):
        assert judged(noise(2 * seed, 0.01) * left, noise(2 * seed + 1, 0.01)) == "steady"


def test_what_is_slow_by_less_than_a_limit_allows_is_sound() -> None:
    assert judged(noise(0, 0.001) * 0.95, noise(1, 0.001)) == "sound"


@pytest.mark.parametrize("spread", [0.01, 0.2])
def test_what_is_slow_in_a_third_of_its_measurements_flaps(spread: float) -> None:
    for seed in range(20):
        down_TR = np.random.default_rng(seed).random((ROUNDS, REPEATS)) < 0.33
        assert judged(noise(2 * seed, spread) * np.where(down_TR, 0.1, 1), noise(2 * seed + 1, spread)) == "flapping"


def test_without_controls_nothing_is_said() -> None:
    assert judged(noise(0, 0.01) * 0.5, np.empty((0, REPEATS))) == "sound"


def test_of_three_suspects_among_three_the_worst_is_kept_and_the_others_are_its_controls() -> None:
    """Rail 0: node 1 fails now and then. Rail 1: nobody is suspected."""
    rate_PLR = np.ones((1, 2, REPEATS))
    rate_PLR[0, 0, ::4] = 0.01
    met = [(0, ((0, 1),), rate_PLR), (1, ((0, 2),), np.full_like(rate_PLR, 0.8)), (2, ((1, 2),), rate_PLR)]
    seen = Bouts.joined([Bouts.of_round(turn, pair, rates) for turn, pair, rates in met])
    suspected_NL = np.array([[True, False]] * 3)
    assert worst_ports(suspected_NL, seen, 2)[:, 0].tolist() == [False, True, False]
    assert not worst_ports(suspected_NL, seen, 2)[:, 1].any()


def test_rails_are_compared_within_a_bout() -> None:
    """A bout that congestion slows slows all of its rails."""
    rate_LR = np.ones((8, REPEATS))
    rate_LR[3] = 0.6
    seen = Bouts.joined([Bouts.of_round(turn, SUSPECT, rate_LR[None] * (0.3 + turn)) for turn in range(5)])
    shares_M = within_bouts(seen).rate_M
    assert shares_M == pytest.approx(np.where(seen.rail_M == 3, 0.6, 1.0))
    assert low_rails(seen) == [3]
    assert low_rails(seen.where(seen.rail_M < 3)) == []
