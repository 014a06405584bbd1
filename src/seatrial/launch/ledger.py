"""What was launched from this machine: one small file a job, by which it is found again. Secrets are names in it."""

import json
import os
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from seatrial.errors import UsageError
from seatrial.launch.job import Job
from seatrial.records import Frozen, write_json


class Launched(Frozen):
    """A job that was submitted.

    Attributes:
        number: by which the target knows it: Slurm's number, a process id; elsewhere the name of the job.
        folder: where what was sent lies.
        results: see :class:`seatrial.launch.plan.Plan`.
        time: of the submission, in seconds since 1970.
    """

    target: str
    number: str
    job: Job
    folder: Path
    results: PurePosixPath | None
    time: float

    @property
    def name(self) -> str:
        return self.job.name


def state_folder() -> Path:
    """By the XDG Base Directory Specification."""
    given = os.environ.get("XDG_STATE_HOME")
    return (Path(given) if given else Path.home() / ".local" / "state") / "seatrial" / "launch"


def folder_for(state: Path, target: str, name: str) -> Path:
    """Where the files of one submission go; an earlier one of the same name and target is overwritten."""
    return state / f"{target}-{name}"


def write(state: Path, launched: Launched) -> None:
    state.mkdir(parents=True, exist_ok=True)
    write_json(state / f"{launched.target}-{launched.name}-{launched.number}.json", launched.model_dump(mode="json"))


def launched_jobs(state: Path) -> list[Launched]:
    """The newest first.

    Raises:
        UsageError: a record was written by another version, or damaged.
    """
    found = []
    for file in state.glob("*.json"):
        try:
            found.append(Launched.model_validate(json.loads(file.read_text())))
        except (json.JSONDecodeError, ValidationError) as error:
            raise UsageError(f"{file}: no record of a job as this version writes it; move it away") from error
    return sorted(found, key=lambda one: one.time, reverse=True)


def find(state: Path, name: str | None) -> Launched:
    """The newest of this name or number, or of all.

    Raises:
        UsageError: there is none.
    """
    every = launched_jobs(state)
    matching = [one for one in every if name is None or name in (one.name, one.number, f"{one.name}-{one.number}")]
    if not matching:
        known = ", ".join(dict.fromkeys(one.name for one in every)) or "none"
        raise UsageError(f"{name or 'no job'}: not launched from here; known are: {known}; see `seatrial launch list`")
    return matching[0]
