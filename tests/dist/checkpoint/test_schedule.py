"""How often to save, against a simulated machine that fails."""

import random

import pytest

from seatrial.dist.checkpoint.schedule import FIRST_SECONDS, interval_seconds


def lost_share(interval: float, cost: float, mtbf: float, seed: int) -> float:
    """Share of time without progress, when failures come at random and what was done since a save is done again."""
    rng = random.Random(seed)
    now = done = 0.0
    next_failure = rng.expovariate(1 / mtbf)
    while done < 200 * mtbf:
        if now + interval + cost <= next_failure:
            now += interval + cost
            done += interval
        else:
            now = next_failure
            next_failure = now + rng.expovariate(1 / mtbf)
    return 1 - done / now


def test_it_loses_less_than_saving_much_more_or_less_often() -> None:
    cost, mtbf = 10.0, 3600.0
    best = interval_seconds([cost], mtbf / 3600)
    assert best == pytest.approx((2 * cost * mtbf) ** 0.5)
    losses = {factor: lost_share(best * factor, cost, mtbf, seed=1) for factor in (0.25, 1.0, 4.0)}
    assert losses[1.0] < losses[0.25]
    assert losses[1.0] < losses[4.0]


def test_the_cost_is_that_of_the_saves_so_far() -> None:
    assert interval_seconds([], 10) == FIRST_SECONDS
    assert interval_seconds([2.0, 6.0], 10) == interval_seconds([4.0], 10)
