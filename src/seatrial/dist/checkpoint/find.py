"""Which checkpoint to go on from. The first rank judges, for all: ranks may see a shared file system differently."""

from collections.abc import Callable, Mapping
from typing import Any

import torch.distributed as dist

from seatrial.dist.checkpoint.manifest import MANIFEST, Manifest, first_difference, step_of
from seatrial.dist.checkpoint.storage import Storage, await_file
from seatrial.dist.checkpoint.work import read_manifest
from seatrial.errors import IntegrityError, SeatrialError, UsageError
from seatrial.rundir import RunDir

STALE_LISTING_SECONDS = 10.0
"""How long a checkpoint that events.jsonl names may be missing from a listing."""


def agree(judge: Callable[[], Manifest | None], group: dist.ProcessGroup, rank: int) -> Manifest | None:
    """What ``judge`` chooses on the first rank; what it refuses, all refuse. Collective."""
    chosen: list[Manifest | SeatrialError | None] = [None]
    if rank == 0:
        try:
            chosen = [judge()]
        except SeatrialError as error:
            chosen = [error]
    dist.broadcast_object_list(chosen, src=0, group=group)
    if isinstance(chosen[0], SeatrialError):
        raise chosen[0]
    return chosen[0]


def newest(
    storage: Storage, run: RunDir, identity: Mapping[str, Any], *, at_most: int | None = None
) -> Manifest | None:
    """The newest of this run's checkpoints with a manifest that can be read; None when there never was any.

    ``at_most``: of so many steps; None when there is none of them.

    Raises:
        IntegrityError: there were some, and none is left.
        UsageError: it is of another model, other data or other settings.
    """
    await_listed(storage, run)
    for name in storage.committed():
        if at_most is not None and (step_of(name) or 0) > at_most:
            continue
        try:
            manifest = read_manifest(storage, name)
        except IntegrityError as error:
            set_aside(storage, run, name, error)
            continue
        if difference := first_difference(manifest.identity, identity):
            raise UsageError(
                f"{storage.label}/{name} is a checkpoint of another training: {difference}; begin again with --fresh, "
                f"or in another run.dir from its weights with --fork {run.path}"
            )
        return manifest
    if at_most is None and (aside := storage.corrupt()):
        raise IntegrityError(
            f"{storage.label}: no checkpoint is valid ({', '.join(aside)}); bring one back from a copy, or begin again "
            "with --fresh"
        )
    return None


def newest_of_another(storage: Storage, run: RunDir, unfit: set[str]) -> Manifest:
    """The newest of another run's checkpoints that is not in ``unfit``. Nothing there is changed.

    Raises:
        UsageError: there is none.
    """
    for name in storage.committed():
        if name not in unfit:
            try:
                return read_manifest(storage, name)
            except IntegrityError:
                unfit.add(name)
    damaged = f"; damaged: {', '.join(sorted(unfit))}" if unfit else ""
    raise UsageError(f"--fork {run.path}: no checkpoint to start from in {storage.label}{damaged}")


def await_listed(storage: Storage, run: RunDir) -> None:
    """A listing may lag behind (NFS): a checkpoint that this run saved last is looked for by its name.

    Raises:
        IntegrityError: there is no checkpoint, though events.jsonl tells of one.
    """
    saved = [event["checkpoint"] for event in run.read_events() if event["event"] == "save"]
    if not saved or saved[-1] in storage.committed() or storage.corrupt():
        return
    try:
        await_file(storage, f"{saved[-1]}/{MANIFEST}", seconds=STALE_LISTING_SECONDS)
    except IntegrityError as error:
        if not storage.committed():
            raise IntegrityError(
                f"{error}: events.jsonl says that it was saved, and there is no other; is its storage mounted? If it "
                "is lost, begin again with --fresh"
            ) from error
        run.event("fault", what="missing checkpoint", checkpoint=saved[-1], reason=str(error))


def set_aside(storage: Storage, run: RunDir, name: str, error: IntegrityError) -> None:
    """Quarantine a checkpoint and say so."""
    run.event("fault", what="corrupt checkpoint", checkpoint=name, reason=str(error))
    storage.set_aside(name, "corrupt", str(error))


def set_newer_aside(storage: Storage, step: int) -> None:
    """Set aside what was saved after ``step``, which training goes back to or before."""
    for name in storage.committed():
        if (step_of(name) or 0) > step:
            storage.set_aside(name, "rolled-back", f"training went back to step {step} or before")
