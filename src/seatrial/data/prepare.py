"""Rows of a known format -> validated records: read, convert, validate, gate, write."""

import hashlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec

from seatrial import __version__
from seatrial.data.conversation import Conversation, Rejection, encode
from seatrial.data.reading import input_files, read_rows
from seatrial.data.reason import Reason
from seatrial.data.schema import NORMALISER_VERSION
from seatrial.data.sources import CONVERTERS
from seatrial.data.sources.turns import Converter
from seatrial.data.wellformed import well_formed
from seatrial.errors import UsageError
from seatrial.records import JsonObject, write_json


def prepare(source: str, path: Path, out: Path, *, force: bool = False) -> JsonObject:
    """Convert the rows of a file or folder into ``out/records.jsonl`` and return what ``out/manifest.json`` says.

    Raises:
        UsageError: unreadable input, no row left, or ``out`` holds other records.
    """
    files = input_files(path)
    _claim(out, force)
    rejected: Counter[str] = Counter()
    repairs: Counter[str] = Counter()
    accepted = rows = targets = targets_with_call = 0
    with (out / "records.jsonl").open("wb") as records, (out / "rejections.jsonl").open("wb") as rejections:
        for rows, (line, text) in enumerate(_numbered(files), 1):
            result = convert_row(CONVERTERS[source], source, rows, text)
            if isinstance(result, Rejection):
                rejected[result.reason] += 1
                entry = {"row": rows, "line": line, "id": "", "reason": result.reason, "detail": result.detail}
                rejections.write(msgspec.json.encode(entry) + b"\n")
                continue
            accepted += 1
            repairs.update(repair.partition(":")[0] for repair in result.repairs)
            turns = [message for message in result.messages if message.role == "assistant"]
            targets += len(turns)
            targets_with_call += sum(bool(turn.tool_calls) for turn in turns)
            records.write(encode(result))
    if not accepted:
        reason, count = rejected.most_common(1)[0]
        raise UsageError(f"{path}: none of {rows} rows could be used; most often {reason} ({count})")
    manifest: JsonObject = {
        "source": source,
        "rows": rows,
        "accepted": accepted,
        "rejected": dict(rejected.most_common()),
        "share_with_call": targets_with_call / targets,
        "targets": targets,
        "targets_with_call": targets_with_call,
        "repairs": dict(repairs.most_common()),
        "normaliser_version": NORMALISER_VERSION,
        "seatrial": __version__,
        "inputs": [{"path": str(file), "sha256": _sha256(file)} for file in files],
        "records_sha256": _sha256(out / "records.jsonl"),
    }
    write_json(out / "manifest.json", manifest)
    return manifest


def convert_row(convert: Converter, source: str, number: int, text: bytes) -> Conversation | Rejection:
    """One row's text as a validated conversation; a row without an id is named after its number."""
    try:
        row = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:
        return Rejection(Reason.NOT_JSON.value, str(error))
    if not isinstance(row, dict):
        return Rejection(Reason.NOT_AN_OBJECT.value, f"the row is {type(row).__name__}")
    converted = convert(row)
    if isinstance(converted, Rejection):
        return converted
    if not converted.id:
        converted = msgspec.structs.replace(converted, id=f"{source}-{number}")
    return well_formed(converted)


def _numbered(files: list[Path]) -> Iterator[tuple[int, bytes]]:
    for file in files:
        yield from read_rows(file)


def _claim(out: Path, force: bool) -> None:
    if out.exists() and not out.is_dir():
        raise UsageError(f"{out} is a file; --out needs a directory")
    if (out / "records.jsonl").exists() and not force:
        raise UsageError(f"{out} already holds records; choose another --out, or replace them with --force")
    out.mkdir(parents=True, exist_ok=True)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
