"""Rows of input files, undecoded and a batch at a time, so that memory does not grow with the file."""

import mmap
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path

import msgspec

from seatrial.errors import UsageError

SUFFIXES = (".jsonl", ".json", ".ndjson", ".parquet", ".arrow")
# What stands beside the rows of a dataset: written by the `datasets` library, by the hub, and by `seatrial data fetch`.
NOT_ROWS = frozenset({"dataset_info.json", "dataset_infos.json", "dataset_dict.json", "state.json", "fetched.json"})
BOM = b"\xef\xbb\xbf"


def input_files(path: Path, pattern: str = "*") -> list[Path]:
    """The file itself, or the readable files below a folder whose path there matches ``pattern``, in sorted order.

    Hidden files and the descriptions that come with a dataset are passed over.

    Raises:
        UsageError: nothing there, or nothing readable.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UsageError(f"{path}: no such file or folder")
    found_files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    readable = [file for file in found_files if file.name not in NOT_ROWS and not _is_hidden(file.relative_to(path))]
    files = [file for file in readable if fnmatch(str(file.relative_to(path)), pattern)]
    if not files:
        found = f"; found {', '.join(str(file.relative_to(path)) for file in readable[:5])}" if readable else ""
        raise UsageError(f"{path}: no file here ends in {', '.join(SUFFIXES)} and matches '{pattern}'{found}")
    return files


def _is_hidden(inside: Path) -> bool:
    return any(part.startswith(".") for part in inside.parts)


def read_rows(file: Path) -> Iterator[tuple[int, bytes]]:
    """``(line, text)`` of each row, 1-based; in any other file the row's number stands for the line.

    JSON lines are read one by one. A JSON array is split by a parser that runs over the mapped file, so that memory
    holds a reference of some 100 bytes a row and the operating system pages the text in and out. Blank lines are no
    rows; a broken line after a good first one is a row, and whoever decodes it says so.

    Raises:
        UsageError: unreadable, empty, or not JSON; names the line.
    """
    if file.suffix in (".parquet", ".arrow"):
        yield from _table(file)
        return
    try:
        with file.open("rb") as lines:
            start = len(BOM) if lines.read(len(BOM)) == BOM else 0
            lines.seek(start)
            filled = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
            number, first = next(filled, (0, b""))
            if not first:
                raise UsageError(f"{file}: the file is empty")
            if first.lstrip().startswith(b"["):
                yield from _array(file, start)
                return
            _require_json(file, number, first)
            yield number, first
            yield from filled
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error}") from error


def in_batches(rows: Iterable[tuple[int, bytes]], size_bytes: int) -> Iterator[list[tuple[int, bytes]]]:
    """Lists of rows that add up to about ``size_bytes`` each."""
    batch: list[tuple[int, bytes]] = []
    held = 0
    for row in rows:
        batch.append(row)
        held += len(row[1])
        if held >= size_bytes:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def _array(file: Path, start: int) -> Iterator[tuple[int, bytes]]:
    with file.open("rb") as opened:
        text = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)  # unmapped when the last element is gone
    try:
        elements: list[msgspec.Raw] = msgspec.json.decode(memoryview(text)[start:], type=list[msgspec.Raw])
    except ValueError as error:
        line = _line_of(text, start, str(error))
        raise UsageError(f"{file}:{line}: not a JSON array: {error}") from error
    except RecursionError as error:
        raise UsageError(f"{file}: not an array of rows: values are nested too deep") from error
    yield from enumerate(map(bytes, elements), 1)


def _line_of(text: mmap.mmap, start: int, message: str) -> int:
    """1-based line of the byte that a decoding error names; the last line when the text ended too soon."""
    _, found, byte = message.rpartition("(byte ")
    end = start + int(byte.rstrip(")")) if found else len(text)
    return text[:end].count(b"\n") + 1


def _require_json(file: Path, number: int, line: bytes) -> None:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{file}:{number}: not JSON: {error}; expected JSON lines or a JSON array") from error


def _table(file: Path) -> Iterator[tuple[int, bytes]]:
    """Rows of a parquet file, or of the stream format that ``Dataset.save_to_disk`` writes."""
    kind = file.suffix[1:]
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise UsageError(f"{file}: reading {kind} needs pyarrow: pip install 'seatrial[parquet]'") from error
    number = 0
    try:
        if kind == "parquet":
            batches = pyarrow.parquet.ParquetFile(file).iter_batches(batch_size=1000)
        else:
            batches = iter(pyarrow.ipc.open_stream(pyarrow.memory_map(str(file))))
        for batch in batches:
            for row in batch.to_pylist():
                number += 1
                yield number, msgspec.json.encode(row)
    except (OSError, pyarrow.ArrowException) as error:
        raise UsageError(f"{file}: not a file of type {kind}: {' '.join(str(error).split())}") from error
