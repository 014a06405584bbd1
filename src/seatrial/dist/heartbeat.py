"""What each process of a run is doing, readable from outside at any moment: also when it hangs, and after it died.

A rank owns one small file in the memory of its node. Saying something there is a store into memory, without a lock, a
system call or a file server; other processes of the node read it whenever they like. What one node knows reaches the
others through the run directory (:mod:`seatrial.dist.watchdog`), where a file system would be too slow for a step.
"""

import hashlib
import mmap
import os
import struct
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PHASES = (
    "start",
    "data",
    "load",
    "restore",
    "compile",
    "step",
    "save.stage",
    "save.write",
    "save.manifest",
    "save.commit",
    "save.collect",
    "evaluate",
    "export",
    "done",
    "failed",
)
"""``done`` and ``failed`` are last words: a process that ends after another was killed."""

LANES = ("main", "writer", "pulse")
"""Who speaks for a rank: its main thread, the thread that has its checkpoints written, and a thread that only shows
that the interpreter's lock can still be had."""

# A record: number, process id, phase, step, marks, when the phase began and when it was last heard of (monotonic ns).
_RECORD = struct.Struct("<QIIqQQQ")
_CHECKED = struct.Struct("<I")
_SLOT = 64
_HEADER = 256
_LANE = 2 * _SLOT
_HEAD = struct.Struct("<8sIII16s64s")
_MAGIC = b"seatrl01"
SIZE = _HEADER + len(LANES) * _LANE

_NUMBER = {name: number for number, name in enumerate(PHASES)}


class Heartbeat:
    """One lane of a rank's file, or of ``memory`` that nobody reads. Only one thread may speak on a lane.

    A record is written into the one of two slots that is older, under a checksum, so that a reader sees the newest
    record that is whole, whenever it looks and whatever becomes of the writer. About a microsecond.
    """

    def __init__(self, memory: "bytearray | mmap.mmap | None" = None, lane: str = "main") -> None:
        self._memory = memory if memory is not None else bytearray(SIZE)
        self._at = _HEADER + LANES.index(lane) * _LANE
        self._number = max((_slot(bytes(self._memory), at) or (0,))[0] for at in (self._at, self._at + _SLOT))
        self._pid = os.getpid()
        self._phase, self._step, self._marks, self._began_ns = 0, -1, 0, time.monotonic_ns()

    def phase(self, name: str, step: int = -1) -> None:
        """What this process does from now on, and in which step."""
        self._phase, self._step, self._marks, self._began_ns = _NUMBER[name], step, 0, time.monotonic_ns()
        self._write(self._began_ns)

    def mark(self) -> None:
        """Still in the same phase, and further than before."""
        self._marks += 1
        self._write(time.monotonic_ns())

    def lane(self, name: str) -> "Heartbeat":
        """Another voice of the same rank, for another thread to speak with."""
        return Heartbeat(self._memory, name)

    def _write(self, now_ns: int) -> None:
        self._number += 1
        record = _RECORD.pack(
            self._number, self._pid, self._phase, self._step, self._marks, self._began_ns, now_ns
        )  # fmt: skip
        at = self._at + (self._number & 1) * _SLOT
        self._memory[at : at + _RECORD.size + _CHECKED.size] = record + _CHECKED.pack(zlib.crc32(record))


@dataclass(frozen=True)
class Beat:
    """What a lane said last. ``began`` and ``heard`` are seconds of this machine's monotonic clock."""

    pid: int
    phase: str
    step: int
    marks: int
    began: float
    heard: float


@dataclass(frozen=True)
class RankBeats:
    """A rank's file. ``generation`` is the same for all ranks that train together, and for no others."""

    rank: int
    world_size: int
    pid: int
    generation: str
    host: str
    main: Beat | None
    writer: Beat | None
    pulse: Beat | None


def heartbeat_directory(run: Path) -> Path:
    """Where the ranks of a run on this machine have their files: shared memory where there is any."""
    memory = Path("/dev/shm")
    name = f"seatrial-{os.getuid()}-{hashlib.sha256(str(run.resolve()).encode()).hexdigest()[:16]}"
    return (memory if os.access(memory, os.W_OK) else Path(tempfile.gettempdir())) / name


def heartbeat_file(run: Path, rank: int) -> Path:
    return heartbeat_directory(run) / f"rank-{rank:05d}"


@contextmanager
def opened_heartbeat(run: Path, rank: int, world_size: int, generation: str, host: str) -> Iterator[mmap.mmap]:
    """This rank's file, new, for :class:`Heartbeat`. An earlier rank's of the same number is replaced as a whole."""
    path = heartbeat_file(run, rank)
    path.parent.mkdir(mode=0o700, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    head = _HEAD.pack(_MAGIC, rank, world_size, os.getpid(), generation.encode()[:16], host.encode()[:64])
    temporary.write_bytes(head.ljust(SIZE, b"\0"))
    temporary.replace(path)
    with join_heartbeat(path) as memory:
        yield memory


@contextmanager
def join_heartbeat(path: Path) -> Iterator[mmap.mmap]:
    """The memory of an existing file, for a further process of the rank to speak on a lane of its own."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), SIZE) as memory:
        yield memory


def read_heartbeat(path: Path) -> RankBeats | None:
    """What a rank's file says now; None when there is none."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    return parse_heartbeat(content)


def parse_heartbeat(content: bytes) -> RankBeats | None:
    """None when it is not the file of a rank."""
    if len(content) != SIZE or not content.startswith(_MAGIC):
        return None
    _, rank, world_size, pid, generation, host = _HEAD.unpack_from(content)
    beats = {lane: _newest(content, _HEADER + number * _LANE) for number, lane in enumerate(LANES)}
    return RankBeats(rank, world_size, pid, _text(generation), _text(host), **beats)


def read_local(run: Path, ranks: Sequence[int]) -> list[RankBeats]:
    """The files of some ranks of this machine, as far as they exist."""
    found = (read_heartbeat(heartbeat_file(run, rank)) for rank in ranks)
    return [beats for beats in found if beats is not None]


def _newest(content: bytes, at: int) -> Beat | None:
    whole = [record for slot in (at, at + _SLOT) if (record := _slot(content, slot)) is not None]
    if not whole:
        return None
    _, pid, phase, step, marks, began_ns, heard_ns = max(whole)
    return Beat(pid, PHASES[phase], step, marks, began_ns / 1e9, heard_ns / 1e9)


def _slot(content: bytes, at: int) -> tuple[int, int, int, int, int, int, int] | None:
    """A record whose checksum is right; None when it was never written, or is being written."""
    record = content[at : at + _RECORD.size]
    (checksum,) = _CHECKED.unpack_from(content, at + _RECORD.size)
    if not any(record) or zlib.crc32(record) != checksum:
        return None
    fields: tuple[int, int, int, int, int, int, int] = _RECORD.unpack(record)
    return fields


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode(errors="replace")
