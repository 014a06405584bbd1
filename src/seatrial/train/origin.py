"""Where a training begins: at its own newest checkpoint, again from nothing, or at the weights of another run."""

import os
from collections.abc import Mapping
from pathlib import Path

from seatrial.dist.checkpoint.checkpoints import Checkpoints
from seatrial.dist.checkpoint.storage import open_storage
from seatrial.dist.world import World
from seatrial.errors import UsageError
from seatrial.records import JsonObject
from seatrial.rundir import RunDir
from seatrial.settings import CheckpointSettings

# Launchers count here how often they have started the same command again.
_RESTART_COUNTS = ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")


def begin_again(run: RunDir, settings: CheckpointSettings, environment: Mapping[str, str] = os.environ) -> None:
    """``--fresh``: move a run that is there aside, and its checkpoints when they are elsewhere. The first rank alone.

    A restart by torchrun or Slurm repeats the command, but does not begin again.

    Raises:
        UsageError: the run is in use, the directory is no run's, or its checkpoints cannot be moved.
    """
    if any(int(environment.get(name) or 0) > 0 for name in _RESTART_COUNTS):
        return
    if settings.dir is not None and "://" in settings.dir and open_storage(settings.dir).committed():
        raise UsageError(
            f"--fresh: {settings.dir} holds checkpoints and cannot be moved; choose another checkpoint.dir"
        )
    if run.path.exists() and any(path.name != ".lock" for path in run.path.iterdir()):
        run.read_settings()  # refuses what is no run
        with run.locked():
            pass  # refuses a run that is going on; the lock itself cannot be held while its directory is renamed
        run.path.rename(_unoccupied(run.path))
    if settings.dir is not None and "://" not in settings.dir and Path(settings.dir).exists():
        Path(settings.dir).rename(_unoccupied(Path(settings.dir)))


def start_from(checkpoints: Checkpoints, other: RunDir, run: RunDir, world: World, progress: JsonObject) -> None:
    """``--fork RUN``: take the newest weights of another run, with fresh moments, as step 0 of this one. Collective.

    They are saved as this run's own at once, so that it goes on alike whatever becomes of the other.

    Raises:
        UsageError: the other run has no valid checkpoint, or other weights.
    """
    if other.path.resolve() == run.path.resolve():
        raise UsageError(f"--fork {other.path} is the run itself; name another, or leave --fork out to resume it")
    manifest = checkpoints.load_weights(other)
    if world.is_first:
        run.event("fork", run=str(other.path), step=manifest.step, checkpoint=manifest.name)
    checkpoints.save(0, progress)


def _unoccupied(path: Path) -> Path:
    number = 1
    while (aside := path.with_name(f"{path.name}.before-{number}")).exists():
        number += 1
    return aside
