"""The result of an acceptance, as ``acceptance.json`` holds it, and what those read from it who use what it tested."""

import json
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from seatrial.errors import UsageError
from seatrial.records import CheckResult, Frozen, JsonObject, Verdict

STEP_MFU = "step MFU"
STEP_RATE = "step rate alone"
"""Names of measurements of the check ``training.rate``: of each GPU, while no other rank is waited for."""


class Part(Frozen):
    """One thing that can be replaced. ``where`` is how results name it; an empty string is not known."""

    where: str
    name: str
    serial: str
    bus_id: str = ""
    uuid: str = ""


class NodeGrade(Frozen):
    """What was concluded about one node, by itself and among the others. ``reason``: of a verdict that is no PASS."""

    host: str
    verdict: Verdict
    reason: str = ""


class Acceptance(Frozen):
    """``verdict`` grades all of ``checks``; ``seconds`` is the whole duration.

    ``profile``: by whose demands it was graded, if by any. Version 2 added ``host``, ``parts`` and ``culprits``,
    version 3 ``nodes`` and ``profile``; older ones read as if without them.
    """

    schema_version: Literal[1, 2, 3] = 3
    verdict: Verdict
    checks: tuple[CheckResult, ...]
    provenance: JsonObject
    seconds: float
    host: str = ""
    parts: tuple[Part, ...] = ()
    culprits: tuple[JsonObject, ...] = Field((), description="tickets: kind, node, part, host, evidence, reproduce")
    nodes: tuple[NodeGrade, ...] = ()
    profile: str = ""


def read_acceptance(path: Path) -> Acceptance:
    """``acceptance.json``, or the one in this directory.

    Raises:
        UsageError: there is none, or it is not one of ours.
    """
    file = path / "acceptance.json" if path.is_dir() else path
    try:
        return Acceptance.model_validate(json.loads(file.read_text()))
    except OSError as error:
        raise UsageError(f"{file}: cannot be read: {error.strerror}; give a directory that accept wrote") from error
    except (json.JSONDecodeError, ValidationError) as error:
        raise UsageError(f"{file}: not an acceptance.json of version 1 to 3") from error


def excluded_nodes(acceptance: Acceptance) -> tuple[str, ...]:
    """Hosts that must not be used: those that failed, never answered, or were found to be at fault.

    What could not be measured is the acceptance's business and excludes nobody: a busy processor would empty a fleet.
    """
    failed = [grade.host for grade in acceptance.nodes if grade.verdict is Verdict.FAIL]
    blamed = [str(ticket["host"]) for ticket in acceptance.culprits if ticket.get("host")]
    alone = [acceptance.host] if not acceptance.nodes and acceptance.verdict is Verdict.FAIL and acceptance.host else []
    return tuple(sorted({*failed, *blamed, *alone}))


@dataclass(frozen=True)
class TrainingBaseline:
    """What GPUs did when they were accepted. ``mfu``: of the median GPU, None where no GPU took steps.

    ``slowness``: by UUID, the time of a step on this GPU over that on the median one.
    """

    mfu: float | None
    slowness: dict[str, float]


def training_baseline(acceptance: Acceptance) -> TrainingBaseline:
    """From the measurements of ``training.rate``."""
    uuids = {part.where: part.uuid for part in acceptance.parts if part.uuid}
    numbers = [
        number
        for result in acceptance.checks
        if result.check == "training.rate"
        for number in result.measurements
        if number.where in uuids and number.value > 0
    ]
    shares = [number.value for number in numbers if number.name == STEP_MFU]
    rates = {uuids[number.where]: number.value for number in numbers if number.name == STEP_RATE}
    centre = statistics.median(rates.values()) if rates else 0.0
    return TrainingBaseline(
        mfu=statistics.median(shares) if shares else None,
        slowness={uuid: centre / rate for uuid, rate in rates.items()},
    )
