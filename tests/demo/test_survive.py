"""A worker is killed for real, and the run's own records are what is judged."""

from pathlib import Path
from typing import Any

import pytest

from seatrial.demo.survive import judge_survival, train_through_a_kill
from seatrial.errors import IntegrityError
from seatrial.rundir import RunDir
from tests.small import settings_for


def test_a_killed_worker_costs_nothing_but_time(harbour: Path) -> None:
    settings = settings_for(
        harbour,
        data={"length": 640},
        optimizer={"steps": None, "epochs": 40, "packs_per_step": 2},
        checkpoint={"every_steps": 40},
    )
    shown = list(train_through_a_kill(settings, harbour / "train.log", processes=2))
    run = RunDir(settings.run.dir)
    assert [record["step"] for record in shown] == [record["step"] for record in run.read_metrics()]
    survival = judge_survival(run.read_metrics(), run.read_events(), packs_per_step=2)
    assert survival.resumed_from > 0
    assert survival.resumed_from <= survival.step
    assert survival.steps_run_twice >= survival.step - survival.resumed_from
    assert survival.max_loss_difference == 0.0
    assert (run.adapter / "adapter_config.json").is_file()


def record(step: int, attempt: int, loss: float = 1.0, packs: list[int] | None = None) -> dict[str, Any]:
    return {"step": step, "attempt": attempt, "loss": loss, "packs": packs or [step - 1], "seconds": 0.5}


EVENTS = [
    {"event": "fault", "what": "SIGKILL", "step": 3, "time": 10.0},
    {"event": "resume", "step": 2, "attempt": 2, "time": 14.0},
]
FIRST = [record(1, 1), record(2, 1), record(3, 1)]


def test_the_difference_is_over_the_steps_run_twice() -> None:
    survival = judge_survival([*FIRST, record(3, 2, loss=1.25), record(4, 2)], EVENTS, packs_per_step=1)
    assert (survival.step, survival.resumed_from, survival.steps_run_twice) == (3, 2, 1)
    assert survival.max_loss_difference == 0.25
    assert survival.seconds_to_next_step == 4.5


def test_a_skipped_pack_is_found() -> None:
    with pytest.raises(IntegrityError, match="a pack was skipped"):
        judge_survival([*FIRST, record(3, 2), record(4, 2, packs=[5])], EVENTS, packs_per_step=1)


def test_other_packs_on_the_second_time_are_found() -> None:
    with pytest.raises(IntegrityError, match="step 3 was run again on other packs"):
        judge_survival([*FIRST, record(3, 2, packs=[7])], EVENTS, packs_per_step=1)


def test_a_kill_that_did_not_happen_is_found() -> None:
    with pytest.raises(IntegrityError, match="found 0 and 0"):
        judge_survival(FIRST, [], packs_per_step=1)
