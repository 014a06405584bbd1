"""Safetensors files, read by rows: which tensors a checkpoint holds, and any rows of one into a buffer.

The library maps files into memory. Mapped pages count as the process's own, and are fetched one page fault at a time;
reading with an offset keeps to the buffer that it is given, and several threads may do it at once.
Format: 8 bytes of length, a JSON header, the tensors (https://huggingface.co/docs/safetensors).
"""

import json
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seatrial.errors import IntegrityError, UsageError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
DTYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in a file. Its first byte is at ``start``; rows are slices of the first dimension."""

    file: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int

    @property
    def row_bytes(self) -> int:
        return math.prod(self.shape[1:]) * self.dtype.itemsize

    def read(self, first: int, last: int, buffer: Tensor) -> Tensor:
        """Rows ``first`` to ``last`` (exclusive), as a view of the start of ``buffer``, bytes on the CPU.

        Raises:
            IntegrityError: the file ends before they do.
        """
        size = (last - first) * self.row_bytes
        space = memoryview(buffer.numpy().data)[:size]
        descriptor = os.open(self.file, os.O_RDONLY)
        try:
            done = 0
            while done < size:
                count = os.preadv(descriptor, [space[done:]], self.start + first * self.row_bytes + done)
                if count == 0:
                    raise IntegrityError(f"{self.file}: ends inside a tensor; it has changed since it was opened")
                done += count
        finally:
            os.close(descriptor)
        return buffer[:size].view(self.dtype).view(last - first, *self.shape[1:])


def stored_tensors(directory: Path) -> dict[str, StoredTensor]:
    """Every tensor of a model directory, by name, in one file or as its index says.

    Raises:
        UsageError: the directory has no safetensors files.
        IntegrityError: a file is missing, cut short or unreadable, or its index names a tensor that it does not hold.
    """
    if not (directory / INDEX).is_file():
        if not (directory / SINGLE).is_file():
            raise UsageError(f"model.path: {directory} has neither {SINGLE} nor {INDEX}; weights are read from these")
        return _tensors_of(directory / SINGLE)
    try:
        places: dict[str, str] = json.loads((directory / INDEX).read_text())["weight_map"]
    except (ValueError, KeyError) as error:
        raise IntegrityError(f"{directory / INDEX}: no readable weight_map: {error}") from error
    found: dict[str, StoredTensor] = {}
    for file in sorted(set(places.values())):
        found |= _tensors_of(directory / file)
    if absent := sorted(places.keys() - found.keys()):
        raise IntegrityError(
            f"{directory / places[absent[0]]}: without {shortened(absent)}, which {INDEX} places there"
        )
    return found


def _tensors_of(file: Path) -> dict[str, StoredTensor]:
    try:
        with file.open("rb") as opened:
            length = int.from_bytes(opened.read(8), "little")
            size = file.stat().st_size
            header = json.loads(opened.read(length)) if length < size else {}
        header.pop("__metadata__", None)
        last = max((entry["data_offsets"][1] for entry in header.values()), default=0)
        if 8 + length + last != size:
            raise IntegrityError(f"{file}: {size:,} bytes, where its header says {8 + length + last:,}; copy it again")
        return {name: _tensor(file, name, entry, 8 + length) for name, entry in header.items()}
    except FileNotFoundError as error:
        raise IntegrityError(f"{file}: missing, though {INDEX} names it") from error
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise IntegrityError(f"{file}: no readable safetensors header: {error}") from error


def _tensor(file: Path, name: str, entry: dict[str, Any], data_start: int) -> StoredTensor:
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if dtype not in DTYPES:
        raise IntegrityError(f"{file}: {name} is stored as {dtype}; weights are read from {', '.join(DTYPES)}")
    stored = StoredTensor(file, DTYPES[dtype], tuple(shape), data_start + offsets[0])
    if math.prod(shape) * stored.dtype.itemsize != offsets[1] - offsets[0]:
        raise IntegrityError(f"{file}: {name} of shape {tuple(shape)} has {offsets[1] - offsets[0]:,} bytes")
    return stored


def shortened(names: Iterable[str], most: int = 3) -> str:
    """The first few names, and how many more there are."""
    listed = list(names)
    more = f" and {len(listed) - most} more" if len(listed) > most else ""
    return ", ".join(listed[:most]) + more
