"""Host memory that training's tensors are copied into: shared with the writing process, pinned for the GPU's copies."""

import mmap
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from seatrial.errors import ImpossibleConfiguration, SeatrialError
from seatrial.hardware import GIB

ALIGNMENT = 64


class Stage:
    """``size`` bytes, held until :meth:`close`; a file without a name (``descriptor``) for another process to map.

    An anonymous file, not /dev/shm, which containers give 64 MB of.

    Raises:
        ImpossibleConfiguration: this node's memory does not hold the copies of its ranks.
    """

    def __init__(self, size: int, device: torch.device, *, ranks_here: int) -> None:
        self.size = max(size, mmap.PAGESIZE)
        _refuse_too_little_memory(self.size, ranks_here)
        if hasattr(os, "memfd_create"):
            self.descriptor = os.memfd_create("seatrial-checkpoint")
        else:
            with tempfile.TemporaryFile() as file:
                self.descriptor = os.dup(file.fileno())
        os.ftruncate(self.descriptor, self.size)
        self._memory = mmap.mmap(self.descriptor, self.size)
        self._bytes = torch.frombuffer(self._memory, dtype=torch.uint8)
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._pinned = False

    def pin(self) -> None:
        """Take the memory and keep it where the GPU finds it. Some seconds for tens of GiB; before the first copy."""
        if self._stream is not None:
            with torch.cuda.device(self._stream.device):
                _check(torch.cuda.cudart().cudaHostRegister(self._bytes.data_ptr(), self.size, 0), "pin host memory")
            self._pinned = True

    def part(self, begin: int, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """A tensor over the bytes from ``begin``, which is a multiple of the type's size."""
        size = torch.Size(shape).numel() * dtype.itemsize
        return self._bytes[begin : begin + size].view(dtype).view(tuple(shape))

    @torch.no_grad()
    def copy(self, parts: Sequence[Tensor], tensors: Sequence[Tensor]) -> "Copied":
        """Begin to copy ``tensors`` as they are after all work queued so far.

        On a GPU this returns at once; the tensors may change only after :meth:`Copied.hold`.
        """
        if self._stream is None:
            for part, tensor in zip(parts, tensors, strict=True):
                part.copy_(tensor)
            return Copied()
        # Moments that the driver may move between GPU and host look like host tensors, but kernels write to them.
        if any(getattr(tensor, "is_paged", False) for tensor in tensors):
            torch.cuda.current_stream().synchronize()
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            for part, tensor in zip(parts, tensors, strict=True):
                part.copy_(tensor, non_blocking=True)
            done = torch.cuda.Event()
            done.record()
        return Copied(done, tensors)

    def close(self) -> None:
        if self._stream is not None and self._pinned:
            self._stream.synchronize()
            _check(torch.cuda.cudart().cudaHostUnregister(self._bytes.data_ptr()), "unpin host memory")
        del self._bytes  # the mapping goes with the last tensor over it
        os.close(self.descriptor)


class Copied:
    """A copy on its way, which keeps what it is copied from; without ``done``, one that has arrived."""

    def __init__(self, done: "torch.cuda.Event | None" = None, tensors: Sequence[Tensor] = ()) -> None:
        self._done = done
        self._tensors = tensors

    def hold(self) -> None:
        """Let the device's current stream wait for the copy before what is queued next; the host does not wait."""
        if self._done is not None:
            torch.cuda.current_stream().wait_event(self._done)

    def wait(self) -> None:
        """Let the host wait."""
        if self._done is not None:
            self._done.synchronize()
        self._tensors = ()


def _refuse_too_little_memory(size: int, ranks_here: int) -> None:
    free = free_memory_bytes()
    if free is not None and size * ranks_here > free:
        raise ImpossibleConfiguration(
            f"a checkpoint is staged in host memory: the {ranks_here} ranks of this node need "
            f"{size * ranks_here / GIB:.1f} GiB, and {free / GIB:.1f} are free; give the job more memory, or more nodes"
        )


def free_memory_bytes(meminfo: Path = Path("/proc/meminfo"), group: Path = Path("/sys/fs/cgroup")) -> int | None:
    """What can be taken without another process being killed: of the machine and of our control group (v2).

    None where the system does not say.
    """
    free = []
    if meminfo.exists():
        rows = dict(line.split(":") for line in meminfo.read_text().splitlines())
        free.append(int(rows["MemAvailable"].split()[0]) * 1024)
    if (group / "memory.max").exists() and (limit := (group / "memory.max").read_text().strip()) != "max":
        used = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        held = int((group / "memory.current").read_text()) - int(used["inactive_file"])
        free.append(int(limit) - held)
    return min(free, default=None)


def _check(code: object, what: str) -> None:
    if int(code) != 0:  # type: ignore[call-overload]
        raise SeatrialError(f"CUDA refuses to {what}: error {int(code)}")  # type: ignore[call-overload]
