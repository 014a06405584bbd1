"""Who writes which tensors, in which files and where in them: planned once, since no save of a run differs in that.

Files are safetensors. Those of a sharded tensor say in their header where their piece lies, in the way of torch's own
Hugging Face storage, which therefore reads them too.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import SavePlan, WriteItem

from seatrial.dist.checkpoint.manifest import Piece, TensorKind
from seatrial.dist.checkpoint.stage import ALIGNMENT
from seatrial.dist.checkpoint.work import THREADS, FileToWrite

SMALLEST_FILE_BYTES = 64 * 2**20
"""Below this a further file, and a thread to write it, is not worth it."""

# The names of the safetensors format (its documentation, "Format").
_SAFETENSORS = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


@dataclass(frozen=True)
class Box:
    """A box of a tensor and the name it is stored under. ``offsets`` are those in the whole tensor."""

    tensor: str
    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    dtype: torch.dtype
    stored_as: str

    @property
    def size(self) -> int:
        return torch.Size(self.shape).numel() * self.dtype.itemsize


@dataclass(frozen=True)
class WholeFile:
    """A file that the first rank writes whole, in a layout that other libraries read, with texts beside it.

    ``boxes`` are rows of tensors of the state, which :func:`plan_layout` then writes nowhere else. ``texts`` are small
    files, by name.
    """

    name: str
    boxes: tuple[Box, ...]
    texts: Mapping[str, bytes]


@dataclass(frozen=True)
class PlannedFile:
    """``write.begin`` to ``write.end`` in the staged memory hold ``boxes`` one after another."""

    write: FileToWrite
    boxes: tuple[Box, ...]

    @property
    def begins(self) -> list[int]:
        """Where each box begins in the staged memory."""
        return [self.write.begin, *(self.write.begin + end for end in accumulate(box.size for box in self.boxes))][:-1]

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """Where the boxes lie in the file."""
        shift = len(self.write.header) - self.write.begin
        return tuple(
            Piece(box.tensor, box.offsets, box.shape, begin + shift)
            for begin, box in zip(self.begins, self.boxes, strict=True)
        )


@dataclass(frozen=True)
class Layout:
    """``files`` of each rank, and all tensors."""

    files: tuple[tuple[PlannedFile, ...], ...]
    tensors: Mapping[str, TensorKind]

    def rank_bytes(self, rank: int) -> int:
        """Staged memory of a rank."""
        return max((file.write.end for file in self.files[rank]), default=0)

    @property
    def total_bytes(self) -> int:
        return sum(file.write.size for files in self.files for file in files)


def plan_layout(
    state: Mapping[str, Tensor], whole_file: WholeFile | None, group: dist.ProcessGroup, rank: int
) -> Layout:
    """The same on all ranks. Collective.

    DCP plans: each piece of a sharded tensor is written by one of the ranks that hold it, and a tensor that all hold
    by the one that has least to write.
    """
    apart = {box.tensor for box in whole_file.boxes} if whole_file is not None else set()
    planner = DefaultSavePlanner()
    planner.set_up_planner({name: t for name, t in state.items() if name not in apart}, is_coordinator=rank == 0)
    plans: list[SavePlan | None] = [None] * dist.get_world_size(group)
    dist.all_gather_object(plans, planner.create_local_plan(), group=group)
    agreed, _ = planner.create_global_plan([plan for plan in plans if plan is not None])
    boxes = [[box for item in plan.items if (box := _box(item)).size > 0] for plan in agreed]
    return Layout(
        files=tuple(_files_of(number, mine, whole_file if number == 0 else None) for number, mine in enumerate(boxes)),
        tensors={name: TensorKind(str(t.dtype).removeprefix("torch."), tuple(t.shape)) for name, t in state.items()},
    )


def _box(item: WriteItem) -> Box:
    data = item.tensor_data
    assert data is not None, "the state holds tensors only"
    name = item.index.fqn
    return Box(name, tuple(data.chunk.offsets), tuple(data.chunk.sizes), data.properties.dtype, name)


def _files_of(rank: int, boxes: Sequence[Box], whole_file: WholeFile | None) -> tuple[PlannedFile, ...]:
    """A rank's files, one after another in its staged memory."""
    named: list[tuple[str, Sequence[Box], bool]] = []
    if whole_file is not None:
        named.append((whole_file.name, whole_file.boxes, False))
    for number, bin_ in enumerate(bins(boxes)):
        named.append((f"rank-{rank:05d}-{number}.safetensors", bin_, True))
    files, begin = [], 0
    for name, held, with_offsets in named:
        # Wide types first: every tensor then begins at a multiple of its type's size.
        ordered = sorted(held, key=lambda box: (-box.dtype.itemsize, box.stored_as))
        end = begin + sum(box.size for box in ordered)
        files.append(PlannedFile(FileToWrite(name, header(ordered, with_offsets), begin, end), tuple(ordered)))
        begin = -(-end // ALIGNMENT) * ALIGNMENT
    return tuple(files)


def bins(boxes: Sequence[Box]) -> list[list[Box]]:
    """Boxes split over at most ``THREADS`` files of nearly the same size, none of them needlessly small."""
    if not boxes:
        return []
    count = max(1, min(THREADS, sum(box.size for box in boxes) // SMALLEST_FILE_BYTES))
    filled: list[list[Box]] = [[] for _ in range(count)]
    sizes = [0] * count
    for box in sorted(boxes, key=lambda box: -box.size):
        least = sizes.index(min(sizes))
        filled[least].append(box)
        sizes[least] += box.size
    return [bin_ for bin_ in filled if bin_]


def header(boxes: Sequence[Box], with_offsets: bool) -> bytes:
    """Of a safetensors file that holds ``boxes`` in this order; with where they lie, as DCP writes it, when asked."""
    metadata = {"format": "pt"}
    if with_offsets:
        metadata |= {
            "DCP_VERSION": "1.0",
            "DCP_SHARDING_INFO": json.dumps({box.stored_as: {"saved_offsets": list(box.offsets)} for box in boxes}),
        }
    entries: dict[str, object] = {"__metadata__": metadata}
    at = 0
    for box in boxes:
        entries[box.stored_as] = {
            "dtype": _SAFETENSORS[box.dtype],
            "shape": list(box.shape),
            "data_offsets": [at, at + box.size],
        }
        at += box.size
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-len(text) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text
