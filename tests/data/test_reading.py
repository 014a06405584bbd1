import json
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.data.reading import in_batches, input_files, read_rows
from seatrial.errors import UsageError

ROWS = [{"a": 1}, {"b": "é\n[{"}, {"c": [1, {"d": None}]}]


def rows_of(path: Path) -> list[tuple[int, object]]:
    return [(line, json.loads(text)) for line, text in read_rows(path)]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\n\n  \n"])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_json_lines(tmp_path: Path, end: str, bom: str) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_bytes((bom + end.join(json.dumps(row) for row in ROWS)).encode())
    step = end.count("\n")
    assert rows_of(file) == [(1 + step * number, row) for number, row in enumerate(ROWS)]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("bom", ["", "\ufeff"])
def test_a_json_array(tmp_path: Path, indent: int | None, bom: str) -> None:
    file = tmp_path / "rows.json"
    file.write_bytes((bom + "\n " + json.dumps(ROWS, indent=indent, ensure_ascii=False) + "\n").encode())
    assert rows_of(file) == [(number, row) for number, row in enumerate(ROWS, 1)]


def test_an_array_that_is_not_read_to_its_end_is_let_go(tmp_path: Path) -> None:
    file = tmp_path / "rows.json"
    file.write_text(json.dumps(ROWS))
    assert next(iter(read_rows(file)))[0] == 1


def test_parquet(tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist([{"a": 1, "b": ["x"]}, {"a": None, "b": []}]), file)
    assert rows_of(file) == [(1, {"a": 1, "b": ["x"]}), (2, {"a": None, "b": []})]


def test_a_dataset_that_was_saved_to_disk(tmp_path: Path) -> None:
    """A folder as ``Dataset.save_to_disk`` and the hub's cache leave it: descriptions beside the rows."""
    table = pyarrow.Table.from_pylist([{"a": 1, "b": [{"c": "x"}]}, {"a": None, "b": []}])
    with pyarrow.ipc.new_stream(tmp_path / "data-00000-of-00001.arrow", table.schema) as stream:
        stream.write_table(table)
    for name in ("dataset_info.json", "state.json", "fetched.json", ".cache/huggingface/rows.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{\n}")
    (file,) = input_files(tmp_path)
    assert rows_of(file) == [(1, {"a": 1, "b": [{"c": "x"}]}), (2, {"a": None, "b": []})]


def test_a_broken_line_after_a_good_one_is_a_row(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"a": 1}\n{"b": \n')
    assert [(line, text) for line, text in read_rows(file)] == [(1, b'{"a": 1}\n'), (2, b'{"b": \n')]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "the file is empty"),
        (" \n\n", "the file is empty"),
        ("hello\n", ":1: not JSON"),
        ('\n\n{"a"\n', ":3: not JSON"),
        ('[{"a": 1},\n{"b": 2}\n{"c": 3}]', ":3: not a JSON array"),
        ('[{"a": 1},\n{"b": 2', ":2: not a JSON array"),
        ('[{"a": 1}]\n[{"b": 2}]', ":2: not a JSON array"),
        ('["a\x00"]', ":1: not a JSON array"),
        ("[" * 5000 + "]" * 5000, "nested too deep"),
    ],
)
def test_what_is_not_json_is_refused_with_its_line(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "rows.json"
    file.write_text(content)
    with pytest.raises(UsageError, match=r"rows\.json") as caught:
        list(read_rows(file))
    assert message in str(caught.value)


@pytest.mark.parametrize("kind", ["parquet", "arrow"])
def test_what_is_no_table_is_refused(kind: str, tmp_path: Path) -> None:
    file = tmp_path / f"rows.{kind}"
    file.write_text("{}")
    with pytest.raises(UsageError, match=f"not a file of type {kind}"):
        list(read_rows(file))


def test_a_folder_gives_its_readable_files_in_order(tmp_path: Path) -> None:
    for name in ("b.jsonl", "a.json", "notes.md", "deep/c.jsonl", "deep/d.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    names = [str(file.relative_to(tmp_path)) for file in input_files(tmp_path)]
    assert names == ["a.json", "b.jsonl", "deep/c.jsonl", "deep/d.parquet"]
    assert [file.name for file in input_files(tmp_path, "deep/*.jsonl")] == ["c.jsonl"]


def test_nothing_to_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file or folder"):
        input_files(tmp_path / "nosuch")
    with pytest.raises(UsageError, match="no file here ends in"):
        input_files(tmp_path)
    (tmp_path / "a.json").touch()
    with pytest.raises(UsageError, match=r"matches '\*b\*'; found a.json"):
        input_files(tmp_path, "*b*")


@given(st.lists(st.binary(max_size=30)), st.integers(1, 50))
@settings(max_examples=50)
def test_batches_hold_every_row_once_and_in_order(texts: list[bytes], size_bytes: int) -> None:
    rows = list(enumerate(texts))
    batches = list(in_batches(rows, size_bytes))
    assert [row for batch in batches for row in batch] == rows
    assert all(sum(len(text) for _, text in batch[:-1]) < size_bytes for batch in batches)
