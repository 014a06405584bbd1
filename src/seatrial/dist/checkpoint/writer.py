"""The process that writes: it serialises nothing, only copies shared memory to files, and needs no torch.

A process, not a thread: a thread would take the interpreter's lock from the one that queues the device's work.
``python -m seatrial.dist.checkpoint.writer`` is started by :mod:`seatrial.dist.checkpoint.process` and ends with it.
"""

import mmap
import signal
import sys
import threading
import time
from multiprocessing.connection import Connection
from typing import Any

from seatrial.dist.checkpoint.storage import open_storage
from seatrial.dist.checkpoint.work import (
    Alive,
    Collect,
    Commit,
    Discard,
    Failed,
    Write,
    collect,
    commit,
    discard,
    explain,
    write,
)
from seatrial.dist.orphan import die_with
from seatrial.errors import SeatrialError

_ALIVE_SECONDS = 0.5
# Sent to all processes of a job; what to do about them is the trainer's to decide, and it needs us for the last save.
_NOT_OURS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP)


def main(connection: int, staged: int, size: int, parent: int, place: str) -> None:
    """Do tasks until the trainer is gone.

    Args:
        connection: file descriptor of a socket on which tasks come and results go.
        staged: file descriptor of the ``size`` bytes of shared memory that tasks write from.
        parent: process id of the trainer.
    """
    for number in _NOT_OURS:
        signal.signal(number, signal.SIG_IGN)
    die_with(parent)
    memory = memoryview(mmap.mmap(staged, size, prot=mmap.PROT_READ))
    with Connection(connection) as trainer:
        pulse = _Pulse(trainer)
        pulse.send(Alive())
        while True:
            try:
                task = trainer.recv()
            except EOFError:
                return
            try:
                result = _done(task, place, memory, pulse)
            except (OSError, SeatrialError) as error:
                result = Failed(*explain(error))
            pulse.send(result)


def _done(task: Any, place: str, memory: memoryview, pulse: "_Pulse") -> Any:
    storage = open_storage(place)
    match task:
        case Write():
            return write(storage, task, memory, pulse.beat)
        case Commit():
            return commit(storage, task, pulse.beat)
        case Collect():
            return collect(storage, task, pulse.beat)
        case Discard():
            return discard(storage, task)
    raise SeatrialError(f"unknown task {task}")


class _Pulse:
    """Tells the trainer, from any thread and not too often, that a task gets on."""

    def __init__(self, trainer: Connection) -> None:
        self._trainer = trainer
        self._lock = threading.Lock()
        self._last = 0.0

    def beat(self) -> None:
        with self._lock:
            if time.monotonic() - self._last > _ALIVE_SECONDS:
                self._trainer.send(Alive())
                self._last = time.monotonic()

    def send(self, result: Any) -> None:
        with self._lock:
            self._trainer.send(result)


if __name__ == "__main__":
    connection, staged, size, parent, place = sys.argv[1:]
    main(int(connection), int(staged), int(size), int(parent), place)
