"""Checkpoints that are whole or do not exist, written while training goes on, loadable at any world size.

A checkpoint is written under a temporary name by torch's distributed checkpoint library (DCP), hashed, given a
``manifest.json``, fsynced, and renamed onto a name that did not exist. Readers trust nothing but a manifest whose
files all have the size and hash it states: DCP itself loads flipped bits without a word, and can report success
with shards missing (pytorch issue 191391), so the manifest is also held against what was planned.
"""

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter

from seatrial.dist.world import World
from seatrial.errors import IntegrityError, SeatrialError
from seatrial.records import JsonObject, write_json
from seatrial.rundir import RunDir

MANIFEST = "manifest.json"
_COMMITTED = re.compile(r"step-(\d{8})")


class Checkpoints:
    """Saves and finds the checkpoints of one run. Every method but ``committed`` must be called by all ranks."""

    def __init__(self, run: RunDir, world: World, *, keep: int) -> None:
        self._run = run
        self._world = world
        self._keep = keep
        # Its own group: the writing thread's collectives must not interleave with the training's.
        self._group = dist.new_group(backend="gloo")
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._pending: Future[None] | None = None
        if world.is_first:
            for leftover in run.checkpoints.glob("*.tmp"):
                shutil.rmtree(leftover)

    def save(self, step: int, state: Mapping[str, Tensor], progress: JsonObject) -> None:
        """Copy ``state`` and write it in the background. Blocks only for the copy and for a save still under way.

        ``progress`` goes into the manifest and comes back from :meth:`load_latest`.
        """
        start = time.monotonic()
        self.wait()
        staged = {name: tensor.detach().to("cpu", copy=True) for name, tensor in state.items()}
        blocked = time.monotonic() - start
        self._pending = self._thread.submit(self._write, step, staged, progress, blocked)

    def wait(self) -> None:
        """Until no save is under way; raises what went wrong in it."""
        if self._pending is not None:
            self._pending.result()
            self._pending = None

    def close(self) -> None:
        """Finish the save under way and end the thread."""
        self.wait()
        self._thread.shutdown()

    def committed(self) -> list[Path]:
        """Directories under a final name, newest first."""
        found = [path for path in self._run.checkpoints.glob("step-*") if _COMMITTED.fullmatch(path.name)]
        return sorted(found, reverse=True)

    def load_latest(self, state: Mapping[str, Tensor]) -> JsonObject | None:
        """Fill ``state`` in place from the newest valid checkpoint and return its progress; None when there is none.

        Rank 0 judges and tells the others, so that ranks cannot disagree about a shared file system. A checkpoint
        that is not what its manifest says is set aside as ``*.corrupt`` and the one before it is tried.
        """
        found: list[JsonObject | None] = [None]
        if self._world.is_first:
            found[0] = self._newest_valid()
        dist.broadcast_object_list(found, src=0, group=self._group)
        manifest = found[0]
        if manifest is None:
            return None
        target = dict(state)
        reader = FileSystemReader(self._run.checkpoints / manifest["name"])
        state_dict_loader.load(target, storage_reader=reader, process_group=self._group)
        progress: JsonObject = manifest["progress"]
        return progress

    def _newest_valid(self) -> JsonObject | None:
        for directory in self.committed():
            try:
                return verify(directory)
            except IntegrityError as error:
                self._run.event("fault", what="corrupt checkpoint", reason=str(error))
                directory.rename(_unoccupied(directory.with_suffix(".corrupt")))
        return None

    def _write(self, step: int, staged: dict[str, Tensor], progress: JsonObject, blocked_seconds: float) -> None:
        start = time.monotonic()
        final = self._run.checkpoints / f"step-{step:08d}"
        temporary = final.with_suffix(".tmp")
        # One writer thread: DCP's further threads die of a full disk without telling anybody.
        writer = FileSystemWriter(temporary, thread_count=1, sync_files=True)
        try:
            with torch.no_grad():
                state_dict_saver.save(staged, storage_writer=writer, process_group=self._group)
        except CheckpointException as error:  # a BaseException, which nobody above would catch
            cause = next(iter(error.failures.values()))[0]
            raise SeatrialError(f"{final}: not written: {cause}") from error
        if not self._world.is_first:
            return
        _check_complete(temporary, staged)
        manifest = {
            "name": final.name,
            "step": step,
            "world_size": self._world.size,
            "progress": progress,
            "tensors": {name: [str(tensor.dtype), list(tensor.shape)] for name, tensor in staged.items()},
            "files": {path.name: _size_and_hash(path) for path in sorted(temporary.iterdir())},
        }
        write_json(temporary / MANIFEST, manifest)
        _fsync(temporary)
        if final.exists():
            raise IntegrityError(f"{final} exists already; a checkpoint is never overwritten")
        temporary.rename(final)
        _fsync(final.parent)
        self._run.event(
            "save", step=step, seconds_blocked=blocked_seconds, seconds=time.monotonic() - start, checkpoint=final.name
        )
        for old in self.committed()[self._keep :]:
            shutil.rmtree(old)


def verify(directory: Path) -> JsonObject:
    """The manifest of a checkpoint, after holding every file against it.

    Raises:
        IntegrityError: no manifest, or a file that is missing or has another size or hash; names it.
    """
    try:
        manifest: JsonObject = json.loads((directory / MANIFEST).read_text())
        files = manifest["files"]
    except (OSError, ValueError, KeyError) as error:
        raise IntegrityError(f"{directory}: no readable {MANIFEST}: {error}") from error
    for name, stated in files.items():
        path = directory / name
        if not path.is_file():
            raise IntegrityError(f"{path}: missing")
        if _size_and_hash(path) != stated:
            raise IntegrityError(f"{path}: differs from what the manifest states")
    return manifest


def _check_complete(directory: Path, planned: Mapping[str, Tensor]) -> None:
    metadata = FileSystemReader(directory).read_metadata()
    missing = planned.keys() - metadata.state_dict_metadata.keys()
    files = {info.relative_path for info in (metadata.storage_data or {}).values()}
    absent = [name for name in files if not (directory / name).is_file()]
    if missing or absent:
        raise IntegrityError(f"{directory}: incomplete save, without {sorted(missing) + sorted(absent)}")


def _size_and_hash(path: Path) -> list[int | str]:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return [path.stat().st_size, digest]


def _fsync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _unoccupied(path: Path) -> Path:
    candidate, number = path, 1
    while candidate.exists():
        candidate, number = path.with_name(f"{path.name}-{number}"), number + 1
    return candidate
