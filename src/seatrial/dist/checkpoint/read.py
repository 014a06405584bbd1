"""Loading: which checkpoint, and its bytes, hashed as they are read, into tensors laid out in any way."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from seatrial.dist.checkpoint.manifest import MANIFEST, Manifest, Piece
from seatrial.dist.checkpoint.storage import Storage, await_file
from seatrial.dist.checkpoint.work import THREADS, read_hashed, verify_files
from seatrial.errors import IntegrityError, SeatrialError, UsageError


def load(
    storage: Storage, manifest: Manifest, state: Mapping[str, Tensor], group: dist.ProcessGroup | None, rank: int
) -> None:
    """Fill ``state`` in place. Collective; when it raises, it raises on all ranks, and ``state`` is not to be used.

    Args:
        group: None in a process alone, without a process group.

    Raises:
        IntegrityError: what was read is not what the manifest states; says what, and on which rank.
        UsageError: the checkpoint holds other tensors than ``state``.
    """
    refuse_other_tensors(storage, manifest, state)
    refuse_unseen(storage, manifest, group, rank)
    reader = VerifyingReader(storage, manifest, others=rank == 0)
    try:
        state_dict_loader.load(dict(state), storage_reader=reader, process_group=group, no_dist=group is None)
    except CheckpointException as error:  # a BaseException, which nobody above would catch
        at, (cause, _) = next(iter(error.failures.items()))
        if isinstance(cause, SeatrialError):
            raise IntegrityError(f"{cause} (read by rank {at})") from error
        raise SeatrialError(f"{storage.label}/{manifest.name}: not loaded by rank {at}: {cause!r}") from error


def refuse_other_tensors(storage: Storage, manifest: Manifest, state: Mapping[str, Tensor]) -> None:
    """DCP would round one type to another and leave out what is not asked for without a word.

    Raises:
        UsageError: names the first tensor that differs.
    """
    where = f"{storage.label}/{manifest.name}"
    for name, tensor in state.items():
        kind = manifest.tensors.get(name)
        if kind is None:
            raise UsageError(f"{where}: holds no {name}, which this training has; {len(manifest.tensors)} others")
        if (kind.dtype, tuple(kind.shape)) != (str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)):
            raise UsageError(
                f"{where}: {name} is {kind.dtype} {list(kind.shape)}, this training has "
                f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
            )


def refuse_unseen(storage: Storage, manifest: Manifest, group: dist.ProcessGroup | None, rank: int) -> None:
    """Wait until the checkpoint that the first rank chose is to be seen from all nodes. Collective.

    Raises:
        UsageError: it is not, after :data:`storage.VISIBLE_SECONDS`, so that damage is not what is wrong.
    """
    seen: list[str] = [""]
    try:
        await_file(storage, f"{manifest.name}/{MANIFEST}")
    except IntegrityError as error:
        seen = [f"{error} (on rank {rank})"]
    if group is not None:
        mine, seen = seen[0], [""] * dist.get_world_size(group)
        dist.all_gather_object(seen, mine, group=group)
    if unseen := [text for text in seen if text]:
        raise UsageError(
            f"{unseen[0]}, though rank 0 sees it: checkpoint.dir must be the same shared storage on every node"
        )


class VerifyingReader(StorageReader):
    """DCP's reader of our files. Reads each file that it needs once and whole, and hashes what it read.

    ``others``: also check the files that hold no tensors.
    """

    def __init__(self, storage: Storage, manifest: Manifest, *, others: bool) -> None:
        self._storage = storage
        self._manifest = manifest
        self._others = others
        self._where: dict[MetadataIndex, tuple[str, Piece]] = {}

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return False

    def reset(self, checkpoint_id: Any = None) -> None:
        """One reader reads one checkpoint."""

    def read_metadata(self, *_: Any, **__: Any) -> Metadata:
        chunks: dict[str, list[ChunkStorageMetadata]] = {name: [] for name in self._manifest.tensors}
        for name, file in self._manifest.files.items():
            for piece in file.pieces:
                index = MetadataIndex(piece.tensor, piece.offsets)
                self._where[index] = (name, piece)
                chunks[piece.tensor].append(ChunkStorageMetadata(torch.Size(piece.offsets), torch.Size(piece.shape)))
        return Metadata(
            {
                name: TensorStorageMetadata(
                    TensorProperties(dtype=getattr(torch, kind.dtype)), torch.Size(kind.shape), chunks[name]
                )
                for name, kind in self._manifest.tensors.items()
            }
        )

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *_: Any, **__: Any) -> None:
        """Nothing to set up."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        wanted: dict[str, list[tuple[Piece, ReadItem]]] = {}
        for item in plan.items:
            name, piece = self._where[item.storage_index]
            wanted.setdefault(name, []).append((piece, item))

        def read(name: str) -> None:
            path = f"{self._manifest.name}/{name}"
            await_file(self._storage, path, self._manifest.files[name].size, seconds=0.0)
            pieces = sorted(wanted[name], key=lambda pair: pair[0].begin)
            with torch.no_grad():  # is a thread's own
                for held, item in self._held(name, pieces):
                    _put(held, item, planner)

        with ThreadPoolExecutor(THREADS, "read") as pool:
            list(pool.map(read, wanted))
        if self._others:
            rest = [name for name, file in self._manifest.files.items() if not file.pieces]
            verify_files(self._storage, self._manifest, rest)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def _held(self, name: str, wanted: list[tuple[Piece, ReadItem]]) -> Iterator[tuple[Tensor, ReadItem]]:
        """The pieces of one file, each as soon as it has been read; the file is read to its end and hashed."""
        ends = {piece.begin: self._size(piece) for piece, _ in wanted}
        gathered: bytearray | None = None
        at, waiting = 0, list(wanted)
        for block in read_hashed(self._storage, f"{self._manifest.name}/{name}", self._manifest.files[name]):
            while waiting:
                begin, size = waiting[0][0].begin, ends[waiting[0][0].begin]
                if begin >= at + len(block):
                    break
                gathered = bytearray(size) if gathered is None else gathered
                low, high = max(begin, at), min(begin + size, at + len(block))
                gathered[low - begin : high - begin] = memoryview(block)[low - at : high - at]
                if high < begin + size:
                    break
                whole = self._tensor(waiting[0][0], gathered)
                gathered = None
                while waiting and waiting[0][0].begin == begin:  # several parts of one piece
                    yield whole, waiting.pop(0)[1]
            at += len(block)

    def _size(self, piece: Piece) -> int:
        return torch.Size(piece.shape).numel() * self._dtype(piece).itemsize

    def _tensor(self, piece: Piece, content: bytearray) -> Tensor:
        return torch.frombuffer(content, dtype=self._dtype(piece)).view(tuple(piece.shape))

    def _dtype(self, piece: Piece) -> torch.dtype:
        dtype: torch.dtype = getattr(torch, self._manifest.tensors[piece.tensor].dtype)
        return dtype


def _put(held: Tensor, item: ReadItem, planner: LoadPlanner) -> None:
    for dimension, (begin, length) in enumerate(zip(item.storage_offsets, item.lengths, strict=True)):
        held = held.narrow(dimension, begin, length)
    target = planner.resolve_tensor(item).detach()
    target.copy_(held)
    planner.commit_tensor(item, target)
