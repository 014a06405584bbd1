"""What is skipped, what is rolled back, and that every pack is accounted for."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.settings import GuardSettings
from seatrial.train.guard import Fault, Health, Skipped, after_rollback, judge, spike

PACKS = 4
SETTINGS = GuardSettings(window_steps=8)


def judged(losses: list[float], settings: GuardSettings = SETTINGS) -> tuple[Health, list[Fault | None]]:
    health, faults = Health(), []
    for step, loss in enumerate(losses):
        health, fault = judge(health, step, loss, 1.0, settings, packs_per_step=PACKS)
        faults.append(fault)
    return health, faults


def test_sound_steps_leave_nothing_but_their_losses() -> None:
    health, faults = judged([2.0 - 0.1 * step for step in range(12)])
    assert faults == [None] * 12
    assert health == Health(losses=tuple(2.0 - 0.1 * step for step in range(4, 12)))


@pytest.mark.parametrize("broken", [math.nan, math.inf, -math.inf])
def test_a_step_that_is_not_finite_is_skipped_and_the_third_in_a_row_rolls_back(broken: float) -> None:
    health, faults = judged([2.0, broken, 2.0, broken, broken])
    assert [fault and fault.response for fault in faults] == [None, "skip", None, "skip", "skip"]
    assert [(each.first_pack, each.last_pack) for each in health.skipped] == [(4, 7), (12, 15), (16, 19)]
    _, fault = judge(health, 5, 2.0, broken, SETTINGS, packs_per_step=PACKS)
    assert fault is not None
    # Step 3 was the first of them, so the weights after three steps are suspect; those after two took step 2.
    assert (fault.response, fault.newest) == ("roll back", 2)


def test_a_rollback_that_does_not_help_goes_further_back() -> None:
    health, _ = judged([2.0] * 6 + [math.nan] * 3)
    health = after_rollback(health, Health((2.0,) * 4), loaded_step=4, step=8, why="test", packs_per_step=PACKS)
    assert health.skipped == (Skipped(16, 35, "test"),)
    fault: Fault | None = None
    for step in (9, 10, 11):
        health, fault = judge(health, step, math.nan, 1.0, SETTINGS, packs_per_step=PACKS)
    assert fault == Fault("roll back", fault.why if fault else "", newest=3)
    health = after_rollback(health, Health((2.0,) * 2), loaded_step=2, step=11, why="again", packs_per_step=PACKS)
    assert health.skipped == (Skipped(8, 47, "again"),)
    health, fault = judge(health, 12, 2.0, 1.0, SETTINGS, packs_per_step=PACKS)
    assert fault is None
    assert (health.rollbacks, health.rolled_back_to) == (2, None)


def test_a_spike_needs_a_full_window_many_deviations_and_a_size() -> None:
    noisy = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.1, 0.9]
    assert spike(9.0, noisy[:7], SETTINGS) == ""
    assert spike(9.0, noisy, SETTINGS).startswith("loss 9, where the 8 steps before had 1 ")
    assert spike(1.9, noisy, SETTINGS) == ""  # 12 deviations of 0.11
    assert spike(0.5, [0.1] * 8, SETTINGS) == ""  # no deviation at all, and 0.4 nats
    assert spike(0.7, [0.1] * 8, SETTINGS)
    assert spike(9.0, noisy, GuardSettings(window_steps=8, spike_z=None)) == ""
    _, faults = judged([*noisy, 9.0])
    assert faults[-1] is not None
    assert (faults[-1].response, faults[-1].newest) == ("roll back", 7)


@given(st.lists(st.sampled_from([1.0, 1.01, 7.0, math.nan]), max_size=40), st.data())
def test_packs_are_effective_once_or_recorded_and_memory_survives_a_checkpoint(
    losses: list[float], data: st.DataObject
) -> None:
    """Against a simulation in which every step writes down whose packs its weights have seen."""
    seen: dict[int, frozenset[int]] = {0: frozenset()}  # by steps done: the steps whose updates are in the weights
    saved = {0: (Health(), frozenset[int]())}
    health = Health()
    for step, loss in enumerate(losses):
        health, fault = judge(health, step, loss, 1.0, SETTINGS, packs_per_step=PACKS)
        weights = seen[step] | ({step} if math.isfinite(loss) else set())
        if fault is not None and fault.response == "roll back":
            possible = [done for done in saved if done <= fault.newest]
            if not possible:
                return
            to = max(possible)
            loaded, weights = saved[to]
            health = after_rollback(health, loaded, loaded_step=to, step=step, why=fault.why, packs_per_step=PACKS)
            saved = {done: each for done, each in saved.items() if done <= to}
        seen[step + 1] = weights
        skipped = {p // PACKS for each in health.skipped for p in range(each.first_pack, each.last_pack + 1)}
        assert weights | skipped == set(range(step + 1))
        assert not weights & skipped
        assert Health.of(json.loads(json.dumps(health.record()))) == health
        if data.draw(st.booleans()):
            saved[step + 1] = (health, weights)
