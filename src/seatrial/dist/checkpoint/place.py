"""Where a run keeps its checkpoints, and what is there. No torch."""

from dataclasses import asdict, dataclass

from seatrial.dist.checkpoint.manifest import step_of
from seatrial.dist.checkpoint.storage import Storage, open_storage
from seatrial.dist.checkpoint.work import read_manifest, verify_files
from seatrial.errors import IntegrityError, UsageError
from seatrial.records import JsonObject
from seatrial.rundir import RunDir
from seatrial.settings import CheckpointSettings


@dataclass(frozen=True)
class Found:
    """One checkpoint. ``problem``: how it differs from its manifest; empty when it does not, as far as was looked."""

    name: str
    step: int
    size: int
    files: int
    world_size: int
    problem: str

    def as_json(self) -> JsonObject:
        """For ``--json``."""
        values = asdict(self)
        return {**values, "bytes": values.pop("size"), "valid": not self.problem}


def place_of(run: RunDir, settings: CheckpointSettings) -> str:
    """A path or URL."""
    return settings.dir if settings.dir is not None else str(run.checkpoints)


def storage_of(run: RunDir) -> Storage:
    """The storage that a run's own settings name.

    Raises:
        UsageError: not a run directory.
    """
    settings = CheckpointSettings.model_validate(run.read_settings().get("checkpoint", {}))
    return open_storage(place_of(run, settings))


def look(storage: Storage, *, hashes: bool, step: int | None = None) -> list[Found]:
    """Hold the committed checkpoints, or that of one step, against their manifests; newest first.

    Args:
        hashes: read every byte; else sizes must do.

    Raises:
        UsageError: there is none, or none of that step; names those there are.
    """
    names = storage.committed()
    chosen = [name for name in names if step is None or step_of(name) == step]
    if not chosen:
        steps = ", ".join(str(step_of(name)) for name in names)
        raise UsageError(
            f"{storage.label}: no checkpoint of step {step}; there are those of {steps}"
            if names
            else f"{storage.label}: no checkpoint yet"
        )
    return [_look(storage, name, hashes) for name in chosen]


def _look(storage: Storage, name: str, hashes: bool) -> Found:
    step = step_of(name)
    assert step is not None
    try:
        manifest = read_manifest(storage, name)
    except IntegrityError as error:
        return Found(name, step, 0, 0, 0, str(error))
    problem = ""
    try:
        verify_files(storage, manifest, list(manifest.files), hashes=hashes)
    except IntegrityError as error:
        problem = str(error)
    return Found(name, step, manifest.total_bytes, len(manifest.files), manifest.world_size, problem)
