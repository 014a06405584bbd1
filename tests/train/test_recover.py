"""Steps that go wrong in a real training: skipped or rolled back, named, recorded, and the same at every size."""

import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.rundir import RunDir
from tests.small import settings_for, write_config, write_model, write_rows
from tests.train.faulty import NAMED
from tests.train.test_exact import curve, sha256
from tests.worlds import run_worlds

SECTIONS: dict[str, Any] = {
    "optimizer": {"steps": 14, "packs_per_step": 4, "learning_rate": 1e-3},
    "checkpoint": {"every_steps": 2},
    "guard": {"window_steps": 8, "spike_nats": 1.0},
}
SKIPPED = [(21, "nan"), (26, "inf")]
"""In steps 6 and 7."""
LED_ASTRAY = [(24, "nan"), (29, "nan"), (34, "inf")]
"""In steps 7, 8 and 9."""
SPIKE = [(46, 40.0)]
"""In step 12, when the window of eight steps is full."""


def happened(run: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in RunDir(run).read_events() if event["event"] == kind]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All trainings of this file, in one process that forks theirs."""
    folder = tmp_path_factory.mktemp("recover")
    write_model(folder / "model")
    write_rows(folder / "data")

    def training(name: str, processes: int, faults: object, **more: Any) -> dict[str, Any]:
        settings = settings_for(folder, name, **(SECTIONS | more.pop("sections", {})))
        config = write_config(settings, folder / f"{name}.yaml")
        return {"config": config, "processes": processes, "faults": faults, **more}

    one_try = {"guard": {"max_skips": 1, "max_rollbacks": 1}}
    todo = [
        training("skip-1", 1, SKIPPED),
        training("skip-3", 3, SKIPPED),
        training("skip-killed", 2, SKIPPED, kill_at=8),
        training("skip-killed", 1, SKIPPED),
        training("back-1", 1, LED_ASTRAY),
        training("back-killed", 3, LED_ASTRAY, kill_at=10),
        training("back-killed", 2, LED_ASTRAY),
        training("spike-1", 1, SPIKE),
        training("spike-2", 2, SPIKE),
        training("early", 1, [(0, "nan"), (4, "nan"), (8, "nan")], fails=True),
        training("hopeless", 1, [(20, "nan"), (36, "nan")], fails=True, sections=one_try),
    ]
    run_worlds(todo, module="tests.train.faulty")
    return folder


def test_skipped_on_any_rank_at_any_size_killed_or_not_it_is_one_training(runs: Path) -> None:
    same = [runs / name for name in ("skip-1", "skip-3", "skip-killed")]
    assert len({sha256(run) for run in same}) == 1
    assert all(curve(run) == curve(same[0]) for run in same)
    run = runs / "skip-3"
    first, second = happened(run, "skip")
    assert (first["step"], first["packs"], second["packs"]) == (6, [20, 23], [24, 27])
    assert f"gradient of {NAMED}, in pack 21 (rows [" in first["reason"]
    assert "on rank 1" in first["reason"]
    assert "on rank 2" in second["reason"]
    assert [record["step"] for record in RunDir(run).read_metrics()] == [s for s in range(1, 15) if s not in (6, 7)]
    assert happened(run, "rollback") == []


def test_the_third_in_a_row_goes_back_and_leaves_out_what_led_astray(runs: Path) -> None:
    """The weights that step 6 began with are the last that are known to be good."""
    assert sha256(runs / "back-1") == sha256(runs / "back-killed")
    assert curve(runs / "back-1") == curve(runs / "back-killed")
    (event,) = happened(runs / "back-1", "rollback")
    assert (event["step"], event["to"], event["packs"]) == (9, 5, [20, 35])
    assert event["loaded"] <= 5
    assert event["reason"].startswith("3 steps in a row not finite")
    newest = max((runs / "back-1" / "checkpoints").glob("step-*[0-9]"))
    health = json.loads((newest / "manifest.json").read_text())["progress"]["health"]
    assert [(window["first"], window["last"]) for window in health["skipped"]] == [(5, 8)]


def test_a_spike_goes_back_to_before_it(runs: Path) -> None:
    assert sha256(runs / "spike-1") == sha256(runs / "spike-2")
    (event,) = happened(runs / "spike-2", "rollback")
    assert (event["step"], event["to"], event["packs"]) == (12, 10, [40, 47])
    assert "where the 8 sound steps before had" in event["reason"]


@pytest.mark.parametrize(
    ("run", "says"),
    [
        ("early", "there is no checkpoint from before training went wrong to go back to"),
        ("early", f"gradient of {NAMED}, in pack 8"),
        ("hopeless", "training was rolled back 1 times already (guard.max_rollbacks)"),
    ],
)
def test_where_going_back_is_no_help_the_run_fails_and_says_why(runs: Path, run: str, says: str) -> None:
    outcome = RunDir(runs / run).read_outcome()
    assert outcome is not None
    assert (outcome["status"], outcome["exit_code"]) == ("failed", 70)
    assert says in outcome["reason"]
