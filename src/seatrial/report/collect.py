"""The only reader: whatever a run, or a whole demo, has left on disk as one frozen value.

Two layouts are known. A bare run directory holds everything itself; a demo keeps the run in ``run/`` and puts
``acceptance/``, ``evals/{before,after}/`` and ``summary.json`` beside it. What is not there is None or empty.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from seatrial.errors import UsageError
from seatrial.evals.score import PairedChange, mcnemar
from seatrial.evals.suite import JudgedRow, SuiteResult, read_result
from seatrial.records import CheckResult, Frozen, JsonObject, Verdict
from seatrial.rundir import RunDir


class Acceptance(Frozen, extra="ignore"):
    """The part of ``acceptance.json`` that the page shows."""

    verdict: Verdict
    checks: tuple[CheckResult, ...]
    seconds: float


@dataclass(frozen=True)
class Training:
    """What a run directory says. ``metrics`` are in the order of writing, so replayed steps come again."""

    settings: JsonObject
    provenance: JsonObject
    outcome: JsonObject | None
    metrics: tuple[JsonObject, ...]
    events: tuple[JsonObject, ...]


@dataclass(frozen=True)
class Evaluated:
    """One suite scored by one model."""

    result: SuiteResult
    rows: tuple[JudgedRow, ...]


@dataclass(frozen=True)
class Comparison:
    """One suite before and after training; ``change`` is over rows that expect calls, when both saw the same rows."""

    suite: str
    before: Evaluated | None
    after: Evaluated | None
    change: PairedChange | None


@dataclass(frozen=True)
class Report:
    """Everything the page is made of."""

    name: str
    training: Training | None
    acceptance: Acceptance | None
    comparisons: tuple[Comparison, ...]
    summary: JsonObject | None


def collect(path: Path) -> Report:
    """Read a run directory or a demo's directory.

    Raises:
        UsageError: neither, or a file in it is not what its name says.
    """
    if not path.is_dir():
        raise UsageError(f"{path}: no such directory; give a run directory or what `seatrial demo --out` made")
    run = next((RunDir(place) for place in (path, path / "run") if RunDir(place).settings.is_file()), None)
    homes = [path] if run is None or run.path == path else [path, run.path]
    report = Report(
        name=path.resolve().name,
        training=_training(run) if run else None,
        acceptance=_acceptance(homes),
        comparisons=tuple(_comparisons(homes)),
        summary=_read_json(path / "summary.json"),
    )
    if not (report.training or report.acceptance or report.comparisons):
        raise UsageError(f"{path}: nothing to report: no settings.json, no acceptance.json and no evals/ in it")
    return report


def _training(run: RunDir) -> Training:
    try:
        return Training(
            settings=run.read_settings(),
            provenance=_read_json(run.provenance) or {},
            outcome=run.read_outcome(),
            metrics=tuple(run.read_metrics()),
            events=tuple(run.read_events()),
        )
    except json.JSONDecodeError as error:
        raise UsageError(f"{run.path}: one of its record files is damaged: {error}") from error


def _acceptance(homes: Sequence[Path]) -> Acceptance | None:
    for home in homes:
        for file in (home / "acceptance.json", home / "acceptance" / "acceptance.json"):
            if file.is_file():
                try:
                    return Acceptance.model_validate_json(file.read_text())
                except ValidationError as error:
                    raise UsageError(f"{file}: not an acceptance result: {error.errors()[0]['msg']}") from error
    return None


def _comparisons(homes: Sequence[Path]) -> Iterator[Comparison]:
    """Suites in order of name. A result that says neither before nor after is of the model the run made: after."""
    before: dict[str, Evaluated] = {}
    after: dict[str, Evaluated] = {}
    for home in homes:
        for file in sorted((home / "evals").glob("**/*.json")):
            is_before = file.parent.name == "before" or file.name.startswith("before.")
            evaluated = _evaluated(file)
            (before if is_before else after)[evaluated.result.suite] = evaluated
    for suite in sorted(before.keys() | after.keys()):
        old, new = before.get(suite), after.get(suite)
        yield Comparison(suite, old, new, _change(old, new) if old and new else None)


def _evaluated(file: Path) -> Evaluated:
    try:
        result, rows = read_result(file)
    except (OSError, ValueError) as error:
        first_line = str(error).splitlines()[0]
        raise UsageError(f"{file}: not a result of `seatrial eval` with its rows beside it: {first_line}") from error
    return Evaluated(result, tuple(rows))


def _change(before: Evaluated, after: Evaluated) -> PairedChange | None:
    if before.result.suite_sha256 != after.result.suite_sha256:
        return None
    pairs = [
        (old.score.right, new.score.right)
        for old, new in zip(before.rows, after.rows, strict=True)
        if new.score.expects_call
    ]
    return mcnemar([old for old, _ in pairs], [new for _, new in pairs])


def _read_json(file: Path) -> JsonObject | None:
    if not file.is_file():
        return None
    try:
        value = json.loads(file.read_text())
    except json.JSONDecodeError as error:
        raise UsageError(f"{file}: damaged: {error}") from error
    if not isinstance(value, dict):
        raise UsageError(f"{file}: expected a JSON object")
    return value
