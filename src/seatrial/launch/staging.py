"""Model and data on the shared file system before a GPU waits for them: jobs on CPUs, on the target of the job itself.

Downloads go on where they were cut off, so these jobs may be preempted and tried again like any other.
"""

from itertools import pairwise
from pathlib import PurePosixPath

from seatrial.errors import SettingsError
from seatrial.launch.job import Job
from seatrial.launch.preflight.place import CONTAINERS, place_of

DESTINATIONS = {"fetch": "--to", "prepare": "--out"}
"""Verbs of `seatrial data` that fill a directory, and the option that names it."""
CPUS = 4
"""Enough for a few downloads at once and the hashing of what came; rows are prepared on all of them."""
HOURS = 12.0
NAME_CHARACTERS = 40


def staging_jobs(job: Job, target: str) -> tuple[Job, ...]:
    """A job on one node, without GPUs, for each of ``job.stage``. They need not wait for one another.

    Raises:
        SettingsError: nothing is to be staged, or to where the job would not find it.
    """
    if not job.stage:
        raise SettingsError("job.stage is empty: say what --stage fetches, such as [fetch, OWNER/NAME, --to, DIR]")
    for at, words in enumerate(job.stage):
        _check(job, target, at, words)
    return tuple(_staging_job(job, at, words) for at, words in enumerate(job.stage))


def destination(words: tuple[str, ...]) -> PurePosixPath | None:
    """Where the arguments of `seatrial data` put what they make; None when they do not say."""
    option = DESTINATIONS.get(words[0]) if words else None
    if option is None:
        return None
    for word, value in pairwise((*words, "")):
        if word == option and value:
            return PurePosixPath(value)
        if word.startswith(f"{option}="):
            return PurePosixPath(word.partition("=")[2])
    return None


def _check(job: Job, target: str, at: int, words: tuple[str, ...]) -> None:
    said = f"job.stage.{at} = {' '.join(words)}"
    to = destination(words)
    if to is None:
        expected = " or ".join(f"{verb} ... {option} DIR" for verb, option in DESTINATIONS.items())
        raise SettingsError(f"{said}: expected {expected}")
    place = place_of(job, target, to)
    if place.mount is None and target in CONTAINERS:
        raise SettingsError(f"{said}: {place.path} is on none of job.mounts, so it would go with its container")
    if place.mount is not None and place.mount.kind != "shared":
        raise SettingsError(
            f"{said}: {place.path} is on {place.mount.path}, which is {place.mount.kind}: choose a shared mount"
        )


def _staging_job(job: Job, at: int, words: tuple[str, ...]) -> Job:
    ending = f"-stage-{at + 1}"
    changes = {
        "name": job.name[: NAME_CHARACTERS - len(ending)].rstrip("-") + ending,
        "verb": "data",
        "config": None,
        "arguments": words,
        "stage": (),
        "nodes": 1,
        "min_nodes": None,
        "gpus_per_node": 0,
        "processes_per_node": 1,
        "cpus_per_node": min(CPUS, job.cpus_per_node or CPUS),
        "memory_gib": None,
        "shm_gib": 1,
        "run_dir": None,
        "fabric": "none",
        "time_limit_hours": min(HOURS, job.time_limit_hours),
        "acceptance": None,
    }
    return Job.model_validate(job.model_dump() | changes)
