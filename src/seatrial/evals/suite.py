"""A suite of held-out conversations, and a model's result on it: one JSON file, and one line a row beside it.

The last turn of each row is the gold answer; all before it is the prompt.
"""

import hashlib
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import msgspec

from seatrial.data.conversation import Conversation, Message, encode, read_records
from seatrial.errors import UsageError
from seatrial.evals.score import Prediction, RowScore, Scores
from seatrial.records import JsonObject, write_json


class Suite(msgspec.Struct, frozen=True):
    """``sha256`` is of the rows in use: two results can be compared row by row exactly when theirs are equal."""

    name: str
    sha256: str
    rows: tuple[Conversation, ...]


class JudgedRow(msgspec.Struct, frozen=True):
    """One row with all that shows why it was right or wrong; ``tools`` holds the names on offer."""

    id: str
    prompt: tuple[Message, ...]
    tools: tuple[str, ...]
    gold: Message
    prediction: Prediction
    score: RowScore


class SuiteResult(Scores):
    """Scores over the whole suite and by category; ``generation`` says how the answers were made."""

    suite: str
    suite_sha256: str
    model: str
    generation: JsonObject
    seconds: float
    rows_per_s: float
    categories: dict[str, Scores]
    provenance: JsonObject


def read_suite(path: Path, limit: int | None = None) -> Suite:
    """The first ``limit`` rows of a records file or of a prepared directory, whose name the suite bears.

    Raises:
        UsageError: no such file, no rows, or a row that does not end with the assistant's answer to something.
    """
    rows = tuple(islice(read_records(path), limit))
    if not rows:
        raise UsageError(f"{path}: no rows to evaluate; make some with `seatrial data prepare`")
    for number, row in enumerate(rows, 1):
        if len(row.messages) < 2 or row.messages[-1].role != "assistant":
            raise UsageError(
                f"{path}: row {number} ({row.id}) has no gold answer: its last turn must be the assistant's reply"
            )
    digest = hashlib.sha256()
    for row in rows:
        digest.update(encode(row))
    file = path.resolve()
    return Suite(file.parent.name if file.name == "records.jsonl" else file.stem, digest.hexdigest(), rows)


def write_result(file: Path, result: SuiteResult, rows: Sequence[JudgedRow]) -> None:
    """``file`` (.json) and, beside it, the rows under the same name with .jsonl; the result is written last."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = b"".join(msgspec.json.encode(row) + b"\n" for row in rows)
    file.with_suffix(".jsonl").write_bytes(lines)
    write_json(file, result.model_dump(mode="json"))


def read_result(file: Path) -> tuple[SuiteResult, list[JudgedRow]]:
    """Inverse of :func:`write_result`."""
    result = SuiteResult.model_validate_json(file.read_text())
    return result, [_ROW.decode(line) for line in file.with_suffix(".jsonl").read_bytes().splitlines()]


_ROW = msgspec.json.Decoder(JudgedRow)
