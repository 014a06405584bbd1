"""Steps that go wrong in a real training: skipped or rolled back, named, recorded, and the same at every size."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from seatrial.rundir import RunDir
from tests.small import settings_for, write_config
from tests.train.faulty import NAMED
from tests.train.test_exact import curve, sha256
from tests.worlds import run_worlds

PACKS = 4
SECTIONS: dict[str, Any] = {
    "optimizer": {"steps": 14, "packs_per_step": PACKS, "learning_rate": 1e-3},
    "checkpoint": {"every_steps": 2},
    "guard": {"window_steps": 8, "spike_nats": 1.0},
}


def training(folder: Path, name: str, processes: int, **sections: dict[str, Any]) -> dict[str, Any]:
    merged = {key: {**SECTIONS.get(key, {}), **sections.get(key, {})} for key in SECTIONS.keys() | sections.keys()}
    settings = settings_for(folder, name, **merged)
    return {"config": write_config(settings, folder / f"{name}.yaml"), "processes": processes}


def faulty(trainings: list[dict[str, Any]], *faults: tuple[int, str | float]) -> None:
    os.environ["FAULTS"] = json.dumps(faults)
    try:
        run_worlds(trainings, module="tests.train.faulty")
    finally:
        del os.environ["FAULTS"]


def happened(run: Path, kind: str) -> list[dict[str, Any]]:
    return [event for event in RunDir(run).read_events() if event["event"] == kind]


def test_skipped_on_any_rank_at_any_size_killed_or_not_it_is_one_training(harbour: Path) -> None:
    """A gradient that is not a number in pack 21, an infinite one in pack 26: steps 6 and 7."""
    sizes = [training(harbour, f"on-{n}", n) for n in (1, 2, 3)]
    chain = [{**training(harbour, "killed", n), "kill_at": at} for n, at in ((3, 5), (2, 8), (1, None))]
    faulty([*sizes, *chain], (21, "nan"), (26, "inf"))
    runs = [harbour / name for name in ("on-1", "on-2", "on-3", "killed")]
    assert len({sha256(run) for run in runs}) == 1
    assert all(curve(run) == curve(runs[0]) for run in runs)
    run = harbour / "on-2"
    first, second = happened(run, "skip")
    assert (first["step"], first["packs"], second["packs"]) == (6, [20, 23], [24, 27])
    assert f"gradient of {NAMED}, in pack 21 (rows [" in first["reason"]
    assert "on rank 1" in first["reason"]
    assert "on rank 0" in second["reason"]
    assert [record["step"] for record in RunDir(run).read_metrics()] == [s for s in range(1, 15) if s not in (6, 7)]
    assert happened(run, "rollback") == []


def test_the_third_in_a_row_goes_back_and_leaves_the_window_out(harbour: Path) -> None:
    """Steps 7, 8 and 9 go wrong: the weights that step 6 began with are the last that are known to be good."""
    sizes = [training(harbour, f"on-{n}", n) for n in (1, 3)]
    chain = [{**training(harbour, "killed", n), "kill_at": at} for n, at in ((2, 10), (3, None))]
    faulty([*sizes, *chain], (24, "nan"), (29, "nan"), (34, "inf"))
    runs = [harbour / name for name in ("on-1", "on-3", "killed")]
    assert len({sha256(run) for run in runs}) == 1
    assert all(curve(run) == curve(runs[0]) for run in runs)
    (event,) = happened(runs[0], "rollback")
    assert (event["step"], event["to"], event["packs"]) == (9, 5, [20, 35])
    assert event["loaded"] <= 5
    assert event["reason"].startswith("3 steps in a row not finite")
    newest = max((runs[0] / "checkpoints").glob("step-*[0-9]"))
    health = json.loads((newest / "manifest.json").read_text())["progress"]["health"]
    assert [(window["first"], window["last"]) for window in health["skipped"]] == [(5, 8)]


def test_a_spike_goes_back_to_before_it(harbour: Path) -> None:
    """The loss of pack 46 is forty times what it should be, in step 12: the window of eight steps is full by then."""
    sizes = [training(harbour, f"on-{n}", n) for n in (1, 2)]
    faulty(sizes, (46, 40.0))
    assert sha256(harbour / "on-1") == sha256(harbour / "on-2")
    (event,) = happened(harbour / "on-2", "rollback")
    assert (event["step"], event["to"], event["packs"]) == (12, 10, [40, 47])
    assert "where the 8 sound steps before had" in event["reason"]


def test_without_a_checkpoint_to_go_back_to_it_fails_and_says_why(harbour: Path) -> None:
    failing = training(harbour, "early", 1)
    with pytest.raises(AssertionError, match=r"step 3: 3 steps in a row not finite"):
        faulty([failing], (0, "nan"), (4, "nan"), (8, "nan"))
    outcome = RunDir(harbour / "early").read_outcome()
    assert outcome is not None
    assert (outcome["status"], outcome["exit_code"]) == ("failed", 70)
    assert "there is no checkpoint from before training went wrong" in outcome["reason"]
    assert f"gradient of {NAMED}, in pack 8" in outcome["reason"]


def test_rollbacks_are_bounded(harbour: Path) -> None:
    failing = training(harbour, "hopeless", 1, guard={"max_skips": 1, "max_rollbacks": 1})
    with pytest.raises(AssertionError, match=r"rolled back 1 times already"):
        faulty([failing], (20, "nan"), (36, "nan"))
