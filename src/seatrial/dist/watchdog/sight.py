"""What one node can see of its own ranks: their heartbeats, their processes, and, on request, their stacks."""

import os
import pickle
import re
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from seatrial.dist.heartbeat import RankBeats, heartbeat_directory, read_heartbeat, read_local
from seatrial.dist.watchdog.verdict import RankView, collectives_begun, main_stack

STACK_SIGNAL = signal.SIGUSR2
"""Makes a rank write the stacks of its threads, from C, whatever its interpreter does."""


_OF_RANK = re.compile(r"(?:rank|nccl)-(\d+)")


def stack_file(run: Path, rank: int) -> Path:
    return heartbeat_directory(run) / f"rank-{rank:05d}.stack"


def recorder_prefix(run: Path) -> Path:
    """What the names of NCCL's flight recorders begin with: PREFIX + rank, and for asking PREFIX + rank + '.pipe'."""
    return heartbeat_directory(run) / "nccl-"


def record_collectives(run: Path) -> None:
    """Have NCCL keep what it did last, and write it down when it is asked; read when a process group is made.

    Without stacks of Python: taking them needs the interpreter's lock, which may be what is stuck.
    """
    prefix = recorder_prefix(run)
    prefix.parent.mkdir(mode=0o700, exist_ok=True)
    for name, value in (
        ("TORCH_FR_BUFFER_SIZE", "2000"),
        ("TORCH_FR_DUMP_TEMP_FILE", str(prefix)),
        ("TORCH_NCCL_DEBUG_INFO_PIPE_FILE", str(prefix)),
        ("TORCH_INCLUDE_STACK_TRACE", "0"),
    ):
        os.environ.setdefault(name, value)


def forget_collectives(run: Path, rank: int) -> None:
    """What NCCL wrote down in an earlier attempt."""
    Path(f"{recorder_prefix(run)}{rank}").unlink(missing_ok=True)


def process_state(pid: int) -> str:
    """The kernel's letter: R, S, D (waits in the kernel), T (stopped); empty when it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    state = stat.rpartition(")")[2].split()[0]
    return "" if state in "ZX" else state


class LocalRanks:
    """The ranks of this node, of one generation: of those that train together."""

    def __init__(self, run: Path, ranks: Sequence[int], generation: str) -> None:
        self._run, self._ranks, self._generation = run, ranks, generation
        self._gone: set[int] = set()

    def beats(self) -> list[RankBeats]:
        return [beats for beats in read_local(self._run, self._ranks) if beats.generation == self._generation]

    def views(self, beats: Sequence[RankBeats], *, since: float) -> list[RankView]:
        """As they are now. Idle time counts from ``since`` at the earliest, in monotonic seconds."""
        now = time.monotonic()
        views = []
        for rank in beats:
            state = "" if rank.pid in self._gone else process_state(rank.pid)
            if not state:
                self._gone.add(rank.pid)  # its number may be given to another process
            if rank.main is None:
                continue
            pulse = rank.pulse or rank.main
            views.append(
                RankView(
                    rank=rank.rank,
                    host=rank.host,
                    pid=rank.pid,
                    phase=rank.main.phase,
                    step=rank.main.step,
                    marks=rank.main.marks,
                    idle_seconds=now - max(rank.main.heard, since),
                    state=state,
                    pulse_seconds=now - max(pulse.heard, since),
                )
            )
        return views

    def ask_for_stacks(self, views: Sequence[RankView]) -> None:
        """Have them written; a stopped process writes its own when it goes on."""
        for view in views:
            pipe = Path(f"{recorder_prefix(self._run)}{view.rank}.pipe")
            with suppress(OSError):  # no recorder, or nobody reads it
                descriptor = os.open(pipe, os.O_WRONLY | os.O_NONBLOCK)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(b"1\n")
            with suppress(ProcessLookupError):
                if not view.has_ended:
                    os.kill(view.pid, STACK_SIGNAL)

    def stacks(self, rank: int) -> str:
        """All that a rank has written, of all its threads."""
        try:
            return stack_file(self._run, rank).read_text(errors="replace")
        except OSError:
            return ""

    def main_stack(self, rank: int) -> str:
        return main_stack(self.stacks(rank))

    def recorder(self, rank: int) -> Path | None:
        """The flight recorder's dump, when it has made one."""
        path = Path(f"{recorder_prefix(self._run)}{rank}")
        return path if path.is_file() else None

    def collectives_begun(self, rank: int) -> int:
        """-1 without a dump that can be read."""
        path = self.recorder(rank)
        if path is None:
            return -1
        try:
            # Written by our own rank, in a directory that only this user may enter.
            return collectives_begun(pickle.loads(path.read_bytes()))
        except (OSError, pickle.UnpicklingError, EOFError, ValueError, KeyError, TypeError):
            return -1

    def kill(self, views: Sequence[RankView]) -> None:
        """End them now; a stopped process, too."""
        for view in views:
            with suppress(ProcessLookupError):
                if view.pid not in self._gone and process_state(view.pid):
                    os.kill(view.pid, signal.SIGKILL)

    def forget(self) -> None:
        """Remove what ranks have left in memory, those of earlier attempts too; not that of others which still live."""
        folder = heartbeat_directory(self._run)
        found = (read_heartbeat(path) for path in folder.glob("rank-?????"))
        living = {beats.rank for beats in found if beats is not None and not self._is_over(beats)}
        for path in folder.glob("*"):
            number = _OF_RANK.match(path.name)
            if number is not None and int(number[1]) not in living:
                path.unlink(missing_ok=True)
        with suppress(OSError):
            folder.rmdir()

    def _is_over(self, beats: RankBeats) -> bool:
        is_ours = beats.generation == self._generation and beats.rank in self._ranks
        return is_ours or not process_state(beats.pid)
