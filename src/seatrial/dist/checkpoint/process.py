"""The trainer's end of the writing process: start it before the first step, ask it, notice its death."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from multiprocessing import Pipe
from typing import Any

from seatrial.dist.checkpoint.work import Alive, Collect, Commit, Discard, Failed, Write

_START_SECONDS = 60.0
_KILL_SECONDS = 5.0


class WriterProcess:
    """Writes from ``size`` bytes of shared memory, the file ``staged``, to ``place``.

    In a process group of its own, so that signals to the trainer's group leave it alone, and killed by the kernel when
    the trainer dies.
    """

    def __init__(self, staged: int, size: int, place: str) -> None:
        ours, theirs = Pipe()
        with theirs:
            arguments = [theirs.fileno(), staged, size, os.getpid(), place]
            self._process = subprocess.Popen(
                [sys.executable, "-m", "seatrial.dist.checkpoint.writer", *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(), staged),
                process_group=0,
            )
        self._connection = ours
        self._heard_of = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def wait_until_warm(self) -> None:
        """Until it has started; should it not, the first task says why."""
        if not self._heard_of:
            self._heard_of = self._connection.poll(_START_SECONDS)

    def ask(self, task: Write | Commit | Collect | Discard, *, stall_seconds: float) -> Any:
        """What the task returned, or :class:`Failed`, also when the process died or did nothing for ``stall_seconds``.

        Waits in the kernel, without the interpreter's lock.
        """
        try:
            self._connection.send(task)
            while self._connection.poll(stall_seconds):
                self._heard_of = True
                answer = self._connection.recv()
                if not isinstance(answer, Alive):
                    return answer
        except (EOFError, OSError):
            return Failed(0, f"the writing process {self._ended()}")
        self.kill()
        return Failed(0, f"the storage took no data for {stall_seconds:g} s, and the writing process was killed")

    def kill(self) -> None:
        """End it now. One that hangs in the kernel, on a dead file server, is left behind."""
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_SECONDS)
        self._connection.close()

    def _ended(self) -> str:
        try:
            code = self._process.wait(_KILL_SECONDS)
        except subprocess.TimeoutExpired:
            return "closed its connection"
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
