"""A synthetic corpus on disk: rows to train on, and one suite for every way in which a row can be new."""

import hashlib
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

from seatrial import __version__
from seatrial.data.conversation import encode
from seatrial.data.synthetic.corpus import SOURCE, Split, corpus
from seatrial.errors import UsageError
from seatrial.records import JsonObject, write_json


def write_corpus(out: Path, rows: int, seed: int) -> JsonObject:
    """Write ``rows`` training rows to ``out/records.jsonl`` and a tenth as many of each other split to its own file.

    Returns what ``out/manifest.json`` says.

    Raises:
        UsageError: no rows asked for, or ``out`` is a file, holds records already or cannot be written.
    """
    if rows < 1:
        raise UsageError(f"--rows {rows}: ask for at least 1")
    if out.is_file() or (out / "records.jsonl").exists():
        raise UsageError(f"{out} is a file or holds records already; choose another --out")
    suite_rows = max(1, rows // 10)
    try:
        out.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".partial-", dir=out) as partial:
            training = _write_split(Path(partial) / "records.jsonl", Split.TRAIN, rows, seed)
            suites = {
                split.value: _write_split(Path(partial) / f"{split}.jsonl", split, suite_rows, seed)
                for split in Split
                if split is not Split.TRAIN
            }
            manifest = {"source": SOURCE, "seed": seed, "seatrial": __version__, **training, "suites": suites}
            write_json(Path(partial) / "manifest.json", manifest)
            for written in sorted(Path(partial).iterdir(), key=lambda file: file.name == "manifest.json"):
                written.replace(out / written.name)
    except OSError as error:
        raise UsageError(f"--out {out}: cannot be written: {error.strerror or error}") from error
    return manifest


def _write_split(path: Path, split: Split, rows: int, seed: int) -> JsonObject:
    digest = hashlib.sha256()
    categories: Counter[str] = Counter()
    targets = targets_with_call = 0
    with path.open("wb") as file:
        for row in corpus(rows, seed=seed, split=split):
            line = encode(row)
            file.write(line)
            digest.update(line)
            categories[row.category] += 1
            turns = [message for message in row.messages if message.role == "assistant"]
            targets += len(turns)
            targets_with_call += sum(bool(turn.tool_calls) for turn in turns)
    return {
        "file": path.name,
        "rows": rows,
        "share_with_call": targets_with_call / targets,
        "categories": dict(sorted(categories.items())),
        "sha256": digest.hexdigest(),
    }
