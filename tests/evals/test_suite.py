"""Suites are read or refused in one line; results come back from disk as they were."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seatrial.cli.main import app
from seatrial.data.conversation import Conversation, Message
from seatrial.errors import UsageError
from seatrial.evals.suite import read_result, read_suite
from seatrial.records import write_json
from seatrial.rundir import RunDir
from seatrial.settings import DataSettings, ModelSettings, RunSettings, TrainSettings
from tests.evals.conftest import ROWS, conversation, write_suite


def test_a_suite_is_named_after_its_directory_or_its_file(tmp_path: Path) -> None:
    file = write_suite(tmp_path / "unseen_values", ROWS)
    by_file, by_folder = read_suite(file), read_suite(file.parent)
    assert by_file.name == by_folder.name == "unseen_values"
    assert by_file == by_folder and by_file.rows == ROWS
    assert read_suite(file.rename(tmp_path / "mine.jsonl")).name == "mine"


def test_the_digest_is_of_the_rows_in_use(suite_file: Path, tmp_path: Path) -> None:
    whole, part = read_suite(suite_file), read_suite(suite_file, limit=2)
    assert len(part.rows) == 2
    assert whole.sha256 != part.sha256
    assert read_suite(write_suite(tmp_path / "again", ROWS[:2])).sha256 == part.sha256


@pytest.mark.parametrize(
    ("turns", "complaint"),
    [
        ((Message("user", "hello"),), r"row 1 \(x\) has no gold answer"),
        ((Message("assistant", "hello"),), r"row 1 \(x\) has no gold answer"),
        ((Message("assistant", "hello"), Message("user", "hi")), r"row 1 \(x\) has no gold answer"),
    ],
)
def test_a_suite_without_gold_is_refused(tmp_path: Path, turns: tuple[Message, ...], complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        read_suite(write_suite(tmp_path / "bad", [Conversation("x", "test", turns)]))


def test_missing_and_empty_suites_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_suite(tmp_path / "nowhere.jsonl")
    with pytest.raises(UsageError, match="no rows to evaluate"):
        read_suite(write_suite(tmp_path / "empty", []))


def test_the_verb_scores_a_model_and_leaves_rows_beside_the_result(
    model_dir: Path, suite_file: Path, tmp_path: Path
) -> None:
    out = tmp_path / "results" / "held_out.json"
    arguments = ["eval", str(model_dir), "--suite", str(suite_file), "--out", str(out), "--json"]
    done = CliRunner().invoke(app, [*arguments, "--max-new-tokens", "120"], catch_exceptions=False)
    assert done.exit_code == 0
    printed = json.loads(done.stdout)
    assert printed == json.loads(out.read_text())
    assert printed["suite"] == "held_out" and printed["n"] == 3
    assert printed["exact_call"]["value"] == printed["call_recall"]["value"] == printed["irrelevance"]["value"] == 1.0
    assert printed["exact_call"]["n"] == 2 and printed["irrelevance"]["n"] == 1
    assert set(printed["categories"]) == {"single", "parallel", "irrelevant"}
    assert printed["provenance"]["packages"]["torch"]
    result, rows = read_result(out)
    assert result.model_dump(mode="json") == printed
    assert [row.id for row in rows] == ["one", "two", "three"]
    assert [row.gold for row in rows] == [row.messages[-1] for row in ROWS]
    assert all(row.score.right for row in rows)


def test_the_result_of_a_run_goes_into_the_run(model_dir: Path, suite_file: Path, tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run [/red]")
    run.prepare()
    settings = TrainSettings(
        run=RunSettings(dir=run.path), model=ModelSettings(path="tiny"), data=DataSettings(train=suite_file), lora=None
    )
    write_json(run.settings, settings.model_dump(mode="json"))
    run.model.symlink_to(model_dir)
    arguments = ["eval", str(run.path), "--suite", str(suite_file), "--max-new-tokens", "120", "--limit", "1"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 0 and done.stdout == ""
    assert "100.0% (21-100)" in done.stderr and "malformed calls: none" in done.stderr
    result, rows = read_result(run.evals / "held_out.json")
    assert result.n == len(rows) == 1 and result.exact_call.value == 1.0


def test_a_category_is_never_markup(model_dir: Path, tmp_path: Path) -> None:
    row = conversation("one", "weather in Paris?", Message("assistant", "-"), "[/bold]")
    suite = write_suite(tmp_path / "[oops]", [row])
    done = CliRunner().invoke(app, ["eval", str(model_dir), "--suite", str(suite)], catch_exceptions=False)
    assert "[/bold]" in done.stderr and "[oops]: 1 rows" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "say what to evaluate"),
        (["somewhere", "--endpoint", "http://localhost:1"], "say what to evaluate"),
        (["--endpoint", "http://localhost:1"], "say what to evaluate"),
        (["nowhere"], "neither a run directory"),
    ],
)
def test_wrong_usage_is_one_line(suite_file: Path, arguments: list[str], complaint: str) -> None:
    result = CliRunner().invoke(app, ["eval", *arguments, "--suite", str(suite_file)])
    assert isinstance(result.exception, UsageError)
    assert complaint in str(result.exception) and "\n" not in str(result.exception)


def test_a_model_without_a_tokenizer_is_refused(model_dir: Path, suite_file: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    bare.mkdir()
    for name in ("config.json", "model.safetensors"):
        (bare / name).write_bytes((model_dir / name).read_bytes())
    result = CliRunner().invoke(app, ["eval", str(bare), "--suite", str(suite_file)])
    assert isinstance(result.exception, UsageError)
    assert "tokenizer" in str(result.exception)
