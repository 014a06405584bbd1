"""The result of an acceptance, as ``acceptance.json`` holds it, and reading it back."""

import json
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from seatrial.accept.nvml import DriverState
from seatrial.errors import UsageError
from seatrial.records import CheckResult, Frozen, JsonObject, Verdict


class Part(Frozen):
    """One thing that can be replaced. ``where`` is how results name it; an empty string is not known."""

    where: str
    name: str
    serial: str
    bus_id: str = ""
    uuid: str = ""


class Acceptance(Frozen):
    """``verdict`` grades all of ``checks``; ``seconds`` is the whole duration.

    Version 2 added ``host``, ``parts`` and ``culprits``; version 1 reads as one without them.
    """

    schema_version: Literal[1, 2] = 2
    verdict: Verdict
    checks: tuple[CheckResult, ...]
    provenance: JsonObject
    seconds: float
    host: str = ""
    parts: tuple[Part, ...] = ()
    culprits: tuple[JsonObject, ...] = ()


def gpu_label(index: int, uuid: str) -> str:
    """How a GPU is named in every reason: index and the start of its UUID, which stays with the board."""
    return f"GPU {index} ({uuid[:12]})"


def gpu_parts(state: DriverState) -> tuple[Part, ...]:
    return tuple(
        Part(
            where=gpu_label(gpu.index, gpu.uuid),
            name=gpu.name,
            serial=gpu.serial or "",
            bus_id=gpu.bus_id,
            uuid=gpu.uuid,
        )
        for gpu in state.gpus
    )


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
        raise UsageError(f"{file}: not an acceptance.json of version 1 or 2") from error
