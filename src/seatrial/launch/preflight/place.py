"""Where a path of a node lies: on which mount, and whether this machine sees it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from seatrial.launch.job import Job, Mount

CONTAINERS = ("kubernetes", "pytorchjob", "trainjob", "docker", "skypilot")
"""Targets on which what lies on no mount is gone with its container or its rented machine."""
SEEN_FROM_HERE = ("slurm", "torchrun", "docker")
"""Targets whose job is started from a machine that shares its file systems with the nodes."""


@dataclass(frozen=True)
class Place:
    """``path`` is what the node calls it; ``here`` what this machine does, None where it cannot see it.

    ``mount`` is None on the root file system.
    """

    path: PurePosixPath
    mount: Mount | None
    here: Path | None


def place_of(job: Job, target: str, path: PurePosixPath) -> Place:
    """``path`` counts from ``job.workdir`` unless it is absolute."""
    whole = job.workdir / path
    mount = _mount_of(job.mounts, whole)
    if target not in SEEN_FROM_HERE or (mount is not None and mount.kind != "shared" and target == "slurm"):
        return Place(whole, mount, None)
    contained = target == "docker" or (target == "slurm" and job.venv is None)
    if mount is None:
        return Place(whole, None, Path(whole) if not contained and Path(job.workdir).is_dir() else None)
    source = Path(mount.source if mount.source is not None and contained else mount.path)
    seen = source.is_absolute() and source.is_dir()  # else it is a volume, or mounted on the nodes alone
    return Place(whole, mount, source / whole.relative_to(mount.path) if seen else None)


def _mount_of(mounts: Sequence[Mount], path: PurePosixPath) -> Mount | None:
    """The innermost that holds ``path``."""
    holding = [mount for mount in mounts if path.is_relative_to(mount.path)]
    return max(holding, key=lambda mount: len(mount.path.parts), default=None)
