"""Everything that is there is found, in both layouts; what is not there is None; what is damaged is named."""

from pathlib import Path

import pytest

from seatrial.errors import UsageError
from seatrial.records import Verdict
from seatrial.report.collect import collect
from seatrial.rundir import RunDir
from tests.report.conftest import suite_rows, write_acceptance, write_evaluation


def test_a_bare_run_has_its_training_and_nothing_else(run: RunDir) -> None:
    report = collect(run.path)
    assert report.name == "my run"
    assert report.training is not None
    assert len(report.training.metrics) == 34 and report.training.outcome is not None
    assert report.acceptance is None and report.comparisons == () and report.summary is None


def test_a_demo_has_everything(demo: Path) -> None:
    report = collect(demo)
    assert report.training is not None and report.summary is not None
    assert report.acceptance is not None and report.acceptance.verdict is Verdict.WARN
    assert [comparison.suite for comparison in report.comparisons] == ["iid", "unseen_values"]
    iid = report.comparisons[0]
    assert iid.before is not None and iid.after is not None
    assert (iid.before.result.exact_call.value, iid.after.result.exact_call.value) == (0.0, 1.0)
    # Six rows expect a call: all were wrong, all are right; 2 / 2**6.
    assert iid.change is not None and (iid.change.n, iid.change.gained, iid.change.lost) == (6, 6, 0)
    assert iid.change.p_value == pytest.approx(2 / 64)


def test_a_run_may_hold_its_own_acceptance_and_evaluations(run: RunDir) -> None:
    write_acceptance(run.path / "acceptance.json")
    rows = suite_rows()
    write_evaluation(run.evals / "before.iid.json", rows, [0])
    write_evaluation(run.evals / "after.iid.json", rows, [0, 1])
    write_evaluation(run.evals / "other.json", rows, [0])
    report = collect(run.path)
    assert report.acceptance is not None
    iid, other = report.comparisons
    assert iid.suite == "iid" and iid.before and iid.after and iid.change
    assert other.suite == "other" and other.before is None and other.after and other.change is None


def test_different_rows_are_not_compared(run: RunDir) -> None:
    write_evaluation(run.evals / "before.iid.json", suite_rows(6), [0], sha256="six")
    write_evaluation(run.evals / "after.iid.json", suite_rows(8), [0], sha256="eight")
    [comparison] = collect(run.path).comparisons
    assert comparison.before and comparison.after and comparison.change is None


def test_a_line_cut_off_by_a_kill_is_left_out(run: RunDir) -> None:
    with run.metrics.open("a") as file:
        file.write('{"step": 31, "los')
    training = collect(run.path).training
    assert training is not None and training.metrics[-1]["step"] == 30


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("acceptance.json", '{"verdict": "FINE"}', r"acceptance\.json: not an acceptance result"),
        ("summary.json", "{", r"summary\.json: damaged"),
        ("summary.json", "[]", r"summary\.json: expected a JSON object"),
        ("events.jsonl", "{oops}\n", "record files is damaged"),
        ("evals/x.json", "{}", r"x\.json: not a result of `seatrial eval`"),
    ],
)
def test_a_damaged_file_is_named_in_one_line(run: RunDir, name: str, content: str, complaint: str) -> None:
    file = run.path / name
    file.parent.mkdir(exist_ok=True)
    file.write_text(content)
    with pytest.raises(UsageError, match=complaint) as caught:
        collect(run.path)
    assert "\n" not in str(caught.value)


def test_a_place_with_nothing_to_report_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to report"):
        collect(tmp_path)
    with pytest.raises(UsageError, match="no such directory"):
        collect(tmp_path / "nowhere")
