"""A run that leads nowhere is ended, and only such a run."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.errors import ImpossibleConfiguration
from seatrial.records import JsonObject
from seatrial.train.attempts import GAVE_UP, Standstill, ended_unheard, refuse_standstill, standstill

START: JsonObject = {"event": "start"}
FAILED: JsonObject = {"event": "failed", "reason": "out of memory"}
PREEMPTED: JsonObject = {"event": "preempted", "reason": "saved step 4"}
OVER: JsonObject = {"event": "failed", "what": GAVE_UP, "reason": "3 attempts in a row"}


def save(step: int) -> JsonObject:
    return {"event": "save", "step": step}


def test_attempts_that_fail_are_counted_with_the_last_reason() -> None:
    stall: JsonObject = {"event": "stall", "reason": "rank 3 is late"}
    assert standstill([START, FAILED, START, stall]) == Standstill(2, "rank 3 is late")
    assert standstill([START, FAILED, START]) == Standstill(2, "all its processes were killed at once")
    assert standstill([]) == Standstill()


def test_a_new_step_starts_the_count_anew_and_an_old_one_does_not() -> None:
    assert standstill([START, FAILED, START, save(10), FAILED]).attempts == 0
    assert standstill([START, save(10), FAILED, START, save(10), FAILED, START, FAILED]).attempts == 2


def test_being_preempted_is_not_failing() -> None:
    assert standstill([START, FAILED, START, PREEMPTED, START, FAILED]).attempts == 2
    assert standstill([START, PREEMPTED] * 9).attempts == 0


def test_one_that_was_stopped_because_it_had_failed_failed() -> None:
    assert standstill([START, PREEMPTED, FAILED]) == Standstill(1, "out of memory")
    fault: JsonObject = {"event": "fault", "reason": "noticed while it ended, and no reason to fail"}
    assert standstill([START, PREEMPTED, fault]).attempts == 0
    assert standstill([START, save(10), PREEMPTED, FAILED]).attempts == 0


def test_a_mistake_of_the_user_is_the_users_to_mend() -> None:
    refused: JsonObject = {"event": "failed", "reason": "no such file", "exit_code": 2}
    assert standstill([START, refused] * 9).attempts == 0


def test_an_attempt_that_nobody_told_the_end_of() -> None:
    first, second = {**START, "attempt": 1}, {**START, "attempt": 2}
    damaged: JsonObject = {"event": "fault", "what": "corrupt checkpoint", "reason": "a bit"}
    killed: JsonObject = {"event": "fault", "what": "killed", "attempt": 1, "reason": "rank 0"}
    assert ended_unheard([]) is None
    assert ended_unheard([first, save(4), damaged]) == 1
    assert ended_unheard([first, PREEMPTED, second, save(4)]) == 2
    for told in (killed, PREEMPTED, FAILED, {"event": "done", "attempt": 1}):
        assert ended_unheard([first, save(4), told]) is None


@given(
    attempts=st.lists(st.tuples(st.booleans(), st.sampled_from([FAILED, PREEMPTED, None])), max_size=12),
    most=st.integers(1, 5),
)
def test_a_run_is_refused_after_so_many_and_never_before(
    attempts: list[tuple[bool, JsonObject | None]], most: int
) -> None:
    events: list[JsonObject] = []
    in_a_row = 0
    for step, (progress, end) in enumerate(attempts):
        events += [START, *([save(step)] if progress else []), *([end] if end else [])]
        in_a_row = 0 if progress else in_a_row + (end is not PREEMPTED)
    if in_a_row >= most:
        with pytest.raises(ImpossibleConfiguration, match=f"{in_a_row} attempts in a row failed"):
            refuse_standstill(events, most, {})
    else:
        refuse_standstill(events, most, {})


def test_a_person_may_try_again_and_torchrun_may_not() -> None:
    events = [START, FAILED, START, FAILED, START, FAILED]
    with pytest.raises(ImpossibleConfiguration, match="the last one with: out of memory"):
        refuse_standstill(events, 3, {})
    with pytest.raises(ImpossibleConfiguration, match="3 attempts in a row"):
        refuse_standstill([*events, OVER], 3, {"TORCHELASTIC_RESTART_COUNT": "1"})
    refuse_standstill([*events, OVER], 3, {"TORCHELASTIC_RESTART_COUNT": "0"})
    refuse_standstill([*events, OVER, START, FAILED, START, FAILED], 3, {})
