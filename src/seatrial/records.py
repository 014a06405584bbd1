"""What is measured and what is concluded from it: values, intervals, verdicts, and JSON lines on disk."""

import errno
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict

JsonObject = dict[str, Any]


class Frozen(BaseModel):
    """Base of every record and settings section: immutable, and unknown keys are errors."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Verdict(StrEnum):
    """INCONCLUSIVE means that it could not be measured; SKIPPED, that the question does not apply here."""

    PASS = "PASS"
    WARN = "WARN"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    SKIPPED = "SKIPPED"


class Measurement(Frozen):
    """One measured number. ``spread`` is the half-width between the 5th and 95th percentile of the n samples."""

    name: str
    value: float
    unit: str
    n: int
    spread: float
    where: str


class CheckResult(Frozen):
    """What one acceptance check concluded, with the evidence it rests on and what to do about it."""

    check: str
    question: str
    verdict: Verdict
    reason: str
    measurements: tuple[Measurement, ...] = ()
    remedy: str = ""
    seconds: float = 0.0


class Proportion(Frozen):
    """A share of n trials with its 95 % Wilson interval."""

    value: float
    n: int
    low: float
    high: float

    @classmethod
    def of(cls, successes: int, n: int) -> Self:
        """Wilson score interval at z = 1.96 (E. B. Wilson, JASA 22, 1927). With n = 0 the interval is [0, 1]."""
        if n == 0:
            return cls(value=0.0, n=0, low=0.0, high=1.0)
        z = 1.959963984540054
        share = successes / n
        centre = (share + z * z / (2 * n)) / (1 + z * z / n)
        half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        return cls(value=share, n=n, low=max(0.0, centre - half), high=min(1.0, centre + half))


def final_verdict(verdicts: Iterable[Verdict]) -> Verdict:
    """Grade of a whole: FAIL, then INCONCLUSIVE, then WARN outrank PASS; nothing but SKIPPED is INCONCLUSIVE.

    A measured failure outranks an unanswered question because it names something to act on; neither ever
    becomes a PASS.
    """
    seen = set(verdicts)
    for verdict in (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.WARN, Verdict.PASS):
        if verdict in seen:
            return verdict
    return Verdict.INCONCLUSIVE


def append_jsonl(path: Path, record: Mapping[str, Any]) -> None:
    """Append one record as one line in a single write, so that a reader never sees half of it unless we are killed.

    Raises:
        OSError: the disk is full; nothing was appended.
    """
    line = (json.dumps(record, ensure_ascii=False, allow_nan=True) + "\n").encode()
    with path.open("ab", buffering=0) as file:
        begin = file.tell()
        if file.write(line) != len(line):  # a disk that fills takes what fits
            file.truncate(begin)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def read_jsonl(path: Path) -> Iterator[JsonObject]:
    """Records of a JSON-lines file. A last line without a newline was cut off by a kill and is left out."""
    if not path.exists():
        return
    with path.open("rb") as file:
        for line in file:
            if line.endswith(b"\n"):
                yield json.loads(line)


def drop_torn_line(path: Path) -> None:
    """Cut a half-written last line off, so that appending after a kill does not glue two records together."""
    if not path.exists():
        return
    content = path.read_bytes()
    if content and not content.endswith(b"\n"):
        with path.open("r+b") as file:
            file.truncate(content.rfind(b"\n") + 1)


def write_json(path: Path, value: object) -> None:
    """Replace ``path`` whole or not at all: write beside it, fsync, rename."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with temporary.open("w") as file:
        json.dump(value, file, indent=2, ensure_ascii=False)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
