"""The proof finds what it is there to find: sabotaged renderers are caught, honest ones pass."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from seatrial.cli.data_validate import validate as validate_command
from seatrial.data.conversation import Conversation, Message, Rejection, ToolCall, encode
from seatrial.data.render import Rendered, Renderer, TrainOn, named_renderer
from seatrial.data.template import SHIPPED, shipped_template
from seatrial.data.validate import SAMPLE_ROWS, RowCheck, answers, check_row, validate
from seatrial.errors import UsageError
from tests.data.conftest import family_renderer, family_tokenizer
from tests.data.test_render import CASES, assistant, conversation, user


def write_records(folder: Path, rows: list[Conversation]) -> Path:
    (folder / "records.jsonl").write_bytes(b"".join(map(encode, rows)))
    return folder


@dataclass(frozen=True, eq=False)
class Sabotaged(Renderer):
    """A renderer whose tokens or mask are spoilt in one way."""

    spoil: str = ""

    def render(self, conversation: Conversation, train_on: TrainOn = TrainOn.ALL) -> Rendered | Rejection:
        rendered = super().render(conversation, train_on)
        assert isinstance(rendered, Rendered)
        ids, trained = rendered.ids.copy(), rendered.trained.copy()
        match self.spoil:
            case "mask late":
                trained = np.roll(trained, 1)
            case "mask early":
                trained = np.roll(trained, -1)
            case "no stop token":
                trained &= ~np.isin(ids, self.stop_ids)
            case "one turn missing":
                trained[: np.flatnonzero(np.isin(ids, self.stop_ids) & trained)[0] + 1] = False
            case "everything":
                trained[1:] = True
            case "two sequence starts":
                ids, trained = np.insert(ids, 0, ids[0]), np.insert(trained, 0, False)
        return Rendered(ids, trained)


@pytest.mark.parametrize(
    "spoil", ["mask late", "mask early", "no stop token", "one turn missing", "everything", "two sequence starts"]
)
@pytest.mark.parametrize("name", ["tiny", "llama3", "mistral-v3"])
def test_a_spoilt_mask_is_found(name: str, spoil: str) -> None:
    renderer = Sabotaged(family_tokenizer(name), shipped_template(name), spoil)
    check = check_row(renderer, CASES["parallel"])
    assert not check.mask_ok
    assert check.reason


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("case", CASES)
def test_honest_rows_pass(name: str, case: str) -> None:
    assert check_row(family_renderer(name), CASES[case]) == RowCheck(True, True)
    assert check_row(family_renderer(name), CASES[case], TrainOn.LAST) == RowCheck(True, True)


def test_answers_side_by_side_are_told_apart() -> None:
    """Mistral writes nothing between two answers in a row."""
    renderer = family_renderer("mistral-v11")
    row = conversation(user("a"), assistant("one"), assistant("two"))
    rendered = renderer.render(row)
    assert isinstance(rendered, Rendered)
    assert [renderer.decode(rendered.ids[slice(*span)]) for span in answers(renderer, rendered)] == [
        "one</s>",
        "two</s>",
    ]
    assert check_row(renderer, row) == RowCheck(True, True)


def test_a_calls_arguments_that_change_are_found(tiny_renderer: Renderer) -> None:
    said = conversation(user("a"), assistant("", ToolCall("f", {"x": 1})))
    meant = conversation(user("a"), assistant("", ToolCall("f", {"x": 2})))

    @dataclass(frozen=True, eq=False)
    class Mishearing(Renderer):
        def render(self, conversation: Conversation, train_on: TrainOn = TrainOn.ALL) -> Rendered | Rejection:
            return super().render(said, train_on)

    check = check_row(Mishearing(tiny_renderer.tokenizer, tiny_renderer.template), meant)
    assert not check.round_trip_ok


def test_failures_name_row_and_reason(tiny_renderer: Renderer, tmp_path: Path) -> None:
    rows = [CASES["single"], conversation(user("a"), assistant("<|im_end|>")), CASES["parallel"]]
    result = validate(write_records(tmp_path, rows), tiny_renderer, all_rows=True)
    assert (result["rows"], result["mask_ok"], result["round_trip_ok"]) == (3, 2, 2)
    assert result["failures"] == [{"row": 2, "id": "c", "reason": "control token in text", "detail": "<|im_end|>"}]


def test_a_sample_is_checked_unless_all_is_asked_for(tiny_renderer: Renderer, tmp_path: Path) -> None:
    rows = [
        Conversation(str(i), "test", (Message("user", "a"), Message("assistant", "b"))) for i in range(SAMPLE_ROWS + 50)
    ]
    folder = write_records(tmp_path, rows)
    assert validate(folder, tiny_renderer, all_rows=False)["rows"] == SAMPLE_ROWS
    assert validate(folder, tiny_renderer, all_rows=True)["rows"] == SAMPLE_ROWS + 50


def test_the_command(tiny_dir: Path, tmp_path: Path) -> None:
    app = typer.Typer()
    app.command()(validate_command)
    folder = write_records(tmp_path, [CASES["single"], CASES["many turns"]])
    done = CliRunner().invoke(
        app, [str(folder), "--template", str(tiny_dir), "--all", "--json"], catch_exceptions=False
    )
    assert done.exit_code == 0
    assert json.loads(done.stdout) == {"rows": 2, "round_trip_ok": 2, "mask_ok": 2, "failures": []}

    write_records(tmp_path, [CASES["single"], conversation(user("a"), assistant("x <tool_call> y"))])
    failed = CliRunner().invoke(app, [str(folder), "--template", str(tiny_dir), "--json"], catch_exceptions=False)
    assert failed.exit_code == 1
    assert [failure["row"] for failure in json.loads(failed.stdout)["failures"]] == [2]


@pytest.mark.parametrize("name", SHIPPED)
def test_a_template_named_alone_borrows_the_tiny_vocabulary(
    name: str, tiny_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seatrial.data.render.TINY", tiny_dir)
    result = validate(write_records(tmp_path, list(CASES.values())), named_renderer(name), all_rows=True)
    assert result["failures"] == []
    assert result["mask_ok"] == result["round_trip_ok"] == len(CASES)


def test_a_name_that_means_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="'qwen9' is neither a model directory nor one of the templates tiny, hermes"):
        named_renderer("qwen9")
    with pytest.raises(UsageError, match="say which with --model DIR"):
        named_renderer("stock")
