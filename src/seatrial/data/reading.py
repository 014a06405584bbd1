"""Rows of input files, undecoded: JSON lines, or a JSON array that is mapped and not loaded."""

import mmap
from collections.abc import Iterator
from pathlib import Path

import msgspec

from seatrial.errors import UsageError

SUFFIXES = (".jsonl", ".json", ".ndjson")
BOM = b"\xef\xbb\xbf"


def input_files(path: Path) -> list[Path]:
    """The file itself, or the readable files below a folder in sorted order.

    Raises:
        UsageError: nothing there, or nothing readable.
    """
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise UsageError(f"{path}: no such file or folder")
    files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    if not files:
        raise UsageError(f"{path}: no file here ends in {', '.join(SUFFIXES)}")
    return files


def read_rows(file: Path) -> Iterator[tuple[int, bytes]]:
    """``(line, text)`` of each row, 1-based; for an array the number of the element stands for the line.

    A JSON array is split by a parser that runs over the mapped file, so memory holds one small reference per row
    and the operating system pages the text in and out. Blank lines are not rows.

    Raises:
        UsageError: empty, or not JSON from the first line on; names the line.
    """
    with file.open("rb") as lines:
        head = lines.read(3)
        start = 3 if head == BOM else 0
        lines.seek(start)
        first_number, first = next(((n, line) for n, line in enumerate(lines, 1) if line.strip()), (0, b""))
        if not first:
            raise UsageError(f"{file}: the file is empty")
        if first.lstrip().startswith(b"["):
            yield from _array(file, start)
            return
        _require_json(file, first_number, first)
        yield first_number, first
        for number, line in enumerate(lines, first_number + 1):
            if line.strip():
                yield number, line


def _array(file: Path, start: int) -> Iterator[tuple[int, bytes]]:
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as text:
        view = memoryview(text)[start:]
        try:
            elements = msgspec.json.decode(view, type=list[msgspec.Raw])
        except ValueError as error:
            raise UsageError(f"{file}:{_line_of(text, str(error))}: not a JSON array: {error}") from error
        for number, element in enumerate(elements, 1):
            yield number, bytes(element)
        del elements, element
        view.release()


def _line_of(text: mmap.mmap, message: str) -> int:
    """1-based line of the byte that a decoding error names; the last line when the text ended too soon."""
    _, found, byte = message.rpartition("(byte ")
    end = int(byte.rstrip(")")) if found else len(text)
    return text[:end].count(b"\n") + 1


def _require_json(file: Path, number: int, line: bytes) -> None:
    try:
        msgspec.json.decode(line, type=msgspec.Raw)
    except ValueError as error:
        raise UsageError(f"{file}:{number}: not JSON: {error}; expected JSON lines or a JSON array") from error
