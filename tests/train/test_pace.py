"""The judge of a training's pace, on steps as they were recorded, slowed down; and a run that is told of it."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from seatrial.errors import UsageError
from seatrial.rundir import RunDir
from seatrial.train.loop import train
from seatrial.train.pace import Alarm, Expected, Pace, judge_pace, says_something
from tests.small import settings_for, write_model, write_rows

RESULTS = Path(__file__).parents[2] / "results"
# The 8B in float8 on four H200s: MFU of the whole, and each rank's own passes (gpus_h200_2026-11-21, bench_2).
BENCH = json.loads((RESULTS / "gpus_h200_2026-11-21" / "bench_2.json").read_text())
Step = tuple[float, float | None, Sequence[float]]


def recorded() -> list[dict[str, object]]:
    found = [run for run in (BENCH.values() if isinstance(BENCH, dict) else BENCH) if run.get("mfu")]
    assert found
    return found


def alarms(expected: Expected, steps: Iterable[Step]) -> list[tuple[int, Alarm]]:
    """By the number of the step, from 1."""
    pace, given = Pace(), []
    for number, (seconds, mfu, rank_seconds) in enumerate(steps, 1):
        pace, found = judge_pace(pace, expected, seconds=seconds, mfu=mfu, rank_seconds=rank_seconds)
        given += [(number, alarm) for alarm in found]
    return given


EXPECTED = Expected(0.64, (1.0, 1.0, 1.02, 1.0))
EVEN = (0.373, 0.374, 0.380, 0.373)


def test_recorded_steps_of_every_kind_keep_the_pace() -> None:
    """LoRA and full, bf16 and float8, 8B and 70B: none of them is 30 % below the step that acceptance takes."""
    for run in recorded():
        steps: list[Step] = [(2.0, float(str(run["mfu"])), ())] * 40
        assert alarms(EXPECTED, steps) == [], run["mfu"]


def test_a_training_that_stays_slow_is_told_of_once() -> None:
    given = alarms(EXPECTED, [(2.0, 0.60, EVEN)] * 10 + [(3.0, 0.40, EVEN)] * 60)
    assert [(number, alarm.what) for number, alarm in given] == [(30, "slower than accepted")]
    assert "20 steps in a row, 60 s, below 70% of what these GPUs did" in given[0][1].reason
    assert "MFU 0.40, then 0.64" in given[0][1].reason


def test_after_it_recovered_it_is_told_of_again() -> None:
    slow: list[Step] = [(3.0, 0.40, EVEN)] * 25
    assert [number for number, _ in alarms(EXPECTED, [*slow, (2.0, 0.6, EVEN), *slow])] == [20, 46]


def test_short_steps_must_be_slow_for_longer() -> None:
    assert [number for number, _ in alarms(EXPECTED, [(0.5, 0.40, EVEN)] * 80)] == [60]


@pytest.mark.parametrize(
    "steps",
    [
        [(3.0, 0.40, EVEN)] * 19,
        [(3.0, None, EVEN)] * 60,
        [(3.0, 0.46, EVEN)] * 60,
        [(3.0, 0.40 if number % 10 else 0.60, EVEN) for number in range(100)],
    ],
)
def test_what_is_brief_or_within_reason_is_no_alarm(steps: list[Step]) -> None:
    assert alarms(EXPECTED, steps) == []


def test_nothing_is_expected_where_no_gpu_was_measured() -> None:
    assert alarms(Expected(None, (1.0,) * 4), [(3.0, 0.05, EVEN)] * 60) == []
    assert not says_something(None) and not says_something(0.001) and says_something(0.2)


def test_a_late_rank_is_named_against_what_its_gpu_was() -> None:
    """Rank 2's GPU was 2 % slower when it was accepted, and 10 % more than that is needed."""
    given = alarms(EXPECTED, [(3.0, 0.6, (0.373, 0.374, 0.430, 0.373))] * 30)
    assert [(number, alarm.what) for number, alarm in given] == [(20, "rank slower than accepted")]
    assert given[0][1].reason.startswith("rank 2 holds up the others: 20 steps in a row, 60 s")
    usual = Expected(0.64, (1.0, 1.0, 1.15, 1.0))
    assert alarms(usual, [(3.0, 0.6, (0.373, 0.374, 0.430, 0.373))] * 30) == []


def test_ranks_that_take_turns_at_being_late_are_not_slow() -> None:
    """As happens when rows are of many lengths."""
    turns = [(3.0, 0.6, tuple(0.45 if rank == step % 4 else 0.37 for rank in range(4))) for step in range(80)]
    assert alarms(EXPECTED, turns) == []


def acceptance(folder: Path) -> Path:
    gpu = "GPU 0 (GPU-00000000)"
    number = {"name": "step MFU", "value": 0.64, "unit": "1", "n": 9, "spread": 0.0, "where": gpu}
    check = {"check": "training.rate", "question": "?", "verdict": "PASS", "reason": "", "measurements": [number]}
    file = folder / "acceptance.json"
    part = {"where": gpu, "name": "NVIDIA H200", "serial": "1", "uuid": "GPU-00000000-0000"}
    written = {"schema_version": 3, "verdict": "PASS", "checks": [check], "provenance": {}, "seconds": 1.0}
    file.write_text(json.dumps(written | {"parts": [part]}))
    return file


def test_a_run_says_what_is_expected_of_it(tmp_path: Path) -> None:
    """On a processor there is no ceiling, so that nothing is judged, and that is said."""
    write_model(tmp_path / "model")
    write_rows(tmp_path / "data")
    steps = {"steps": 2, "packs_per_step": 1}
    settings = settings_for(tmp_path, run={"acceptance": acceptance(tmp_path)}, optimizer=steps)
    train(settings)
    (event,) = [event for event in RunDir(settings.run.dir).read_events() if event["event"] == "expected"]
    assert (event["mfu"], event["slowness"], event["judged"]) == (0.64, [1.0], False)
    assert event["tokens_per_s"] is None


def test_an_acceptance_that_is_not_there_is_refused(tmp_path: Path) -> None:
    write_model(tmp_path / "model")
    write_rows(tmp_path / "data")
    with pytest.raises(UsageError, match=r"gone\.json: cannot be read"):
        train(settings_for(tmp_path, run={"acceptance": tmp_path / "gone.json"}))
