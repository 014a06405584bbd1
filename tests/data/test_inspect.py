"""Statistics agree with counting by hand, and single rows show what is trained on."""

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from seatrial.cli.data_inspect import inspect as inspect_command
from seatrial.cli.data_pack import pack as pack_command
from seatrial.data.convert import Recipe
from seatrial.data.inspect import plot, row_text, statistics, table
from seatrial.data.prepare import prepare
from seatrial.data.render import Rendered, Renderer
from seatrial.errors import UsageError
from tests.data.rows import OPENAI
from tests.data.test_render import CASES, assistant, conversation, user
from tests.data.test_validate import write_records


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [CASES["single"], CASES["parallel"], CASES["no tools"], conversation(user("a"), assistant("<|im_end|>"))]
    return write_records(tmp_path, rows)


def test_statistics(folder: Path, tiny_renderer: Renderer) -> None:
    rendered = [tiny_renderer.render(CASES[case]) for case in ("single", "parallel", "no tools")]
    lengths = [len(row.ids) for row in rendered if isinstance(row, Rendered)]
    trained = sum(int(row.trained.sum()) for row in rendered if isinstance(row, Rendered))
    found = statistics(folder, tiny_renderer, pack_length=max(lengths))
    assert found.rows == 4
    assert found.rejected == {"control token in text": 1}
    assert found.left_out == {}
    assert (found.tokens, found.trained_tokens) == (sum(lengths), trained)
    assert found.length_percentiles["p100"] == max(lengths)
    assert found.calls == {0: 2, 1: 1, 2: 1}
    assert found.rows_with_call == 2
    assert found.tools == {0: 1, 1: 3}
    assert found.over_long == 0
    assert statistics(folder, tiny_renderer, pack_length=max(lengths) - 1).over_long == 1
    console = Console(width=120, record=True, file=StringIO())
    console.print(table(found))
    assert f"{found.trained_share:.1%}" in console.export_text()


def test_rows_that_the_preparation_turned_away_are_counted(tmp_path: Path, tiny_renderer: Renderer) -> None:
    rows = [OPENAI, {"messages": []}, {"messages": []}, 7]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    prepare(tmp_path / "in.jsonl", tmp_path / "out", Recipe("openai"))
    found = statistics(tmp_path / "out", tiny_renderer, pack_length=512)
    assert found.left_out == {"no_turns": 2, "not_an_object": 1}
    assert json.loads(found.model_dump_json())["trained_share"] == pytest.approx(found.trained_tokens / found.tokens)
    console = Console(width=120, record=True, file=StringIO())
    console.print(table(found))
    assert "left out: no_turns" in console.export_text()


def test_no_rows_are_an_error(tmp_path: Path, tiny_renderer: Renderer) -> None:
    with pytest.raises(UsageError, match="there is no row in it"):
        statistics(write_records(tmp_path, []), tiny_renderer, pack_length=64)


@pytest.mark.parametrize("case", ["parallel", "nested arguments", "spacious text"])
def test_a_row_is_shown_whole_with_the_trained_part_in_green(
    case: str, tmp_path: Path, tiny_renderer: Renderer
) -> None:
    shown = row_text(write_records(tmp_path, [CASES["single"], CASES[case]]), tiny_renderer, 2)
    rendered = tiny_renderer.render(CASES[case])
    assert isinstance(rendered, Rendered)
    assert shown.plain == tiny_renderer.decode(rendered.ids)
    green = "".join(shown.plain[span.start : span.end] for span in shown.spans if str(span.style).startswith("green"))
    assert green == tiny_renderer.decode(rendered.ids[rendered.trained])


@pytest.mark.parametrize(("number", "message"), [(0, "counted from 1"), (9, "counted from 1"), (4, "control token")])
def test_rows_that_cannot_be_shown(number: int, message: str, folder: Path, tiny_renderer: Renderer) -> None:
    with pytest.raises(UsageError, match=message):
        row_text(folder, tiny_renderer, number)


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_plot(suffix: str, folder: Path, tmp_path: Path, tiny_renderer: Renderer) -> None:
    found = statistics(folder, tiny_renderer, pack_length=256)
    plot(found, tmp_path / f"plot.{suffix}")
    assert (tmp_path / f"plot.{suffix}").stat().st_size > 1000
    with pytest.raises(UsageError, match="cannot be written"):
        plot(found, tmp_path / "plot.xyz")


def run(command: Callable[..., None], *arguments: str) -> str:
    app = typer.Typer()
    app.command()(command)
    done = CliRunner().invoke(app, list(arguments), catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_the_commands(folder: Path, tiny_dir: Path, tmp_path: Path) -> None:
    common = [str(folder), "--template", str(tiny_dir)]
    assert json.loads(run(inspect_command, *common, "--json"))["rows"] == 4
    assert run(inspect_command, *common, "--row", "1", "--plot", str(tmp_path / "p.png")) == ""
    packed = json.loads(run(pack_command, *common, "--length", "1024", "--json"))
    assert packed["rows"] == 3
    assert packed["packs"] == 1
    assert packed["efficiency"] == packed["tokens"] / 1024
    assert packed["left_out"] == {"control token in text": 1}
    assert packed["seconds"] < 5
