"""What is skipped, what is rolled back, and that every pack is accounted for."""

import json
import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.settings import GuardSettings
from seatrial.train.guard import Fault, Health, Skipped, after_rollback, as_progress, judge, of_progress, spike

SETTINGS = GuardSettings(window_steps=8)


@dataclass(frozen=True)
class Told:
    step: int
    loss: float
    grad_norm: float = 1.0


def judged(losses: list[float]) -> tuple[Health, list[Fault | None]]:
    health, faults = Health(), []
    for step, loss in enumerate(losses):
        health, fault = judge(health, Told(step, loss), SETTINGS)
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
    assert [(window.first, window.last) for window in health.skipped] == [(1, 1), (3, 3), (4, 4)]
    _, fault = judge(health, Told(5, 2.0, broken), SETTINGS)
    assert fault is not None
    # Step 3 was the first of them, so the weights it began with are suspect; those before took step 2, which was sound.
    assert (fault.response, fault.to) == ("roll back", 2)


def test_steps_between_the_checkpoint_and_the_good_weights_are_done_again_and_those_that_led_astray_are_not() -> None:
    health, _ = judged([2.0, math.nan, 2.0, 2.0, 2.0, math.nan, math.nan])
    loaded, _ = judged([2.0, math.nan])
    health, fault = judge(health, Told(7, math.nan), SETTINGS)
    assert fault is not None
    health = after_rollback(health, loaded, fault, step=7)
    assert [(window.first, window.last) for window in health.skipped] == [(1, 1), (4, 7)]
    assert list(health.steps(2, 10)) == [2, 3, 8, 9]
    assert (health.rollbacks, health.losses, health.next_step(0), health.next_step(4)) == (1, (2.0,), 0, 8)


def test_a_rollback_that_does_not_help_goes_further_back() -> None:
    health, _ = judged([2.0] * 6 + [math.nan] * 2)
    health, fault = judge(health, Told(8, math.nan), SETTINGS)
    assert fault is not None
    assert fault.to == 5
    health = after_rollback(health, judged([2.0] * 5)[0], fault, step=8)
    for step in (9, 10, 11):
        health, fault = judge(health, Told(step, math.nan), SETTINGS)
    assert fault is not None
    assert fault.to == 4
    health = after_rollback(health, judged([2.0] * 4)[0], fault, step=11)
    assert [(window.first, window.last) for window in health.skipped] == [(4, 11)]
    health, fault = judge(health, Told(12, 2.0), SETTINGS)
    assert fault is None
    assert health.rollbacks == 2


def test_nothing_good_came_before_the_first_step() -> None:
    _, faults = judged([math.nan] * 3)
    assert faults[-1] is not None
    assert faults[-1].to == -1


def test_a_spike_needs_a_full_window_many_deviations_and_a_size() -> None:
    noisy = [1.0, 1.1, 0.9, 1.05, 0.95, 1.0, 1.1, 0.9]
    assert spike(9.0, noisy[:7], SETTINGS) == ""
    assert spike(9.0, noisy, SETTINGS).startswith("loss 9, where the 8 sound steps before had 1 ")
    assert spike(1.9, noisy, SETTINGS) == ""  # 12 deviations of 0.11
    assert spike(0.5, [0.1] * 8, SETTINGS) == ""  # no deviation at all, and 0.4 nats
    assert spike(0.7, [0.1] * 8, SETTINGS)
    assert spike(9.0, noisy, GuardSettings(window_steps=8, spike_z=None)) == ""
    _, faults = judged([*noisy, 9.0])
    assert faults[-1] == Fault("roll back", spike(9.0, noisy, SETTINGS), to=7)


@given(st.dictionaries(st.integers(0, 39), st.sampled_from([7.0, math.nan])), st.data())
def test_packs_count_once_or_are_recorded_whatever_is_saved_and_wherever_it_is_killed(
    wrong: dict[int, float], data: st.DataObject
) -> None:
    """Against a simulation: what a step's loss is follows from the step alone, and weights know whose updates they got.

    Two runs save, and are killed, at moments of their own; both must come to the same weights and memory.
    """
    ends = [_simulated(wrong, data) for _ in range(2)]
    if None not in ends:
        assert ends[0] == ends[1]


def _simulated(wrong: dict[int, float], data: st.DataObject) -> tuple[Health, frozenset[int]] | None:
    """None when there was no checkpoint to go back to."""
    health, weights, step = Health(), frozenset[int](), 0
    saved: dict[int, tuple[str, frozenset[int]]] = {}
    kills = 3
    while (step := health.next_step(step)) < 40:
        if health.bad_in_a_row == 0 and data.draw(st.integers(0, 2)) == 0:
            saved[step] = json.dumps(as_progress(step, health)), weights
        if kills and saved and data.draw(st.integers(0, 9)) == 0:
            kills -= 1
            step = max(saved)
            text, weights = saved[step]
            _, health = of_progress(json.loads(text))
            continue
        loss = wrong.get(step, 1.0 + 0.01 * (step % 3))
        health, fault = judge(health, Told(step, loss), SETTINGS)
        if math.isfinite(loss):
            weights |= {step}
        if fault is not None and fault.response == "roll back":
            possible = [done for done in saved if done <= fault.to]
            if not possible:
                return None
            saved = {done: each for done, each in saved.items() if done <= max(possible)}
            text, weights = saved[max(possible)]
            health = after_rollback(health, of_progress(json.loads(text))[1], fault, step=step)
            step = max(possible)
            continue
        step += 1
        skipped = {s for window in health.skipped for s in range(window.first, window.last + 1)}
        assert not weights & skipped
        assert (weights | skipped) >= set(range(step))
    assert all(one.last < two.first for one, two in zip(health.skipped, health.skipped[1:], strict=False))
    return health, weights


def test_what_is_remembered_survives_a_checkpoint() -> None:
    health = Health((1.5, 0.1 + 0.2), 1, 2, (Skipped(3, 7, "why"), Skipped(9, 9, "again")))
    assert of_progress(json.loads(json.dumps(as_progress(5, health)))) == (5, health)
