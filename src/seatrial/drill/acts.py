"""What strikes: each act is done by the process that has come to the moment, to itself or to those around it."""

import ctypes
import errno
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from seatrial.drill.fault import Injection, Order

SLOW_SECONDS = 2.0
LINK = "link0"
"""The network device of a node that lives in a network namespace."""


class Injected(RuntimeError):
    """An error in the training's own code, as far as the training can tell."""


class Trigger:
    """Strikes once, in whichever process of the rank first comes to the moment.

    ``trainer``: process id of the rank, which is another one's than ours in the process that writes. ``spoils``: the
    loss of the next pack is to be none.
    """

    def __init__(self, order: Order, rank: int, trainer: int) -> None:
        due = order.due()
        self._order, self._rank, self._trainer = order, rank, trainer
        self.spoils = False
        self._number = -1
        self.injection: Injection | None = None
        if due is not None and due[1].rank == rank:
            self._number, self.injection = due

    def reached(self, phase: str, when: str, step: int) -> None:
        """Strike if this is the moment."""
        wanted = self.injection
        if wanted is None or (phase, when) != (wanted.moment.phase, wanted.moment.when):
            return
        if 0 <= step < wanted.moment.step or not self._claimed(phase, step):
            return
        self.injection = None
        self.spoils = wanted.act == "nan"
        strike(wanted, self._trainer)

    def _claimed(self, phase: str, step: int) -> bool:
        """Leave the mark first: after the act there may be nobody to do so."""
        told = {"time": time.time(), "pid": os.getpid(), "rank": self._rank, "phase": phase, "step": step}
        try:
            with self._order.mark(self._number).open("x") as file:
                file.write(json.dumps(told))
        except FileExistsError:
            return False
        return True


def strike(injection: Injection, trainer: int) -> None:
    """Raises for acts that are errors; does not return from those that end or stop this process."""
    match injection.act:
        case "SIGKILL" | "SIGTERM" | "SIGSTOP":
            _signal(injection, signal.Signals[injection.act], trainer)
        case "abort":
            os.abort()
        case "segfault":
            ctypes.string_at(0)
        case "exception":
            raise Injected("injected by the drill")
        case "lock":
            _keep_the_interpreters_lock()
        case "ENOSPC" | "EIO" | "EROFS":
            number = getattr(errno, injection.act)
            raise OSError(number, os.strerror(number), "injected by the drill")
        case "slow":
            time.sleep(SLOW_SECONDS)
        case "cut":
            _cut()
        case "power":
            _cut()
            _signal_others(signal.SIGSTOP, trainer)  # at once, or some would live to tell of the others
            _signal(injection, signal.SIGKILL, trainer)
        case "nan":
            pass  # the trigger says so to whoever computes the loss


def _cut() -> None:
    subprocess.run(["ip", "link", "set", LINK, "down"], check=True)


def _keep_the_interpreters_lock() -> None:
    """For good: unlike a sleep, waiting for a mutex that we hold ourselves is not ended by a signal."""
    lock = ctypes.PyDLL(None).pthread_mutex_lock  # PyDLL, unlike CDLL, keeps the interpreter's lock in a call
    mutex = ctypes.create_string_buffer(128)  # zeros are a mutex that nobody holds, of at most 64 bytes
    lock(mutex)
    lock(mutex)


def _signal(injection: Injection, number: signal.Signals, trainer: int) -> None:
    match injection.on:
        case "rank":
            os.kill(trainer, number)
        case "writer":
            os.kill(os.getpid(), number)
        case "agent":
            os.kill(parent_of(trainer), number)
        case "node":
            _signal_others(number, trainer)
            os.kill(os.getpid(), number)


def _signal_others(number: signal.Signals, trainer: int) -> None:
    """All processes of the node but ours. The rank comes last: what writes for it, perhaps us, dies with it."""
    agent = parent_of(trainer)
    for pid in sorted([*descendants(agent), agent], key=lambda pid: pid == trainer):
        if pid != os.getpid():
            with suppress(ProcessLookupError):
                os.kill(pid, number)


def parent_of(pid: int) -> int:
    """0 when there is no such process."""
    return _parents().get(pid, 0)


def descendants(pid: int) -> list[int]:
    """Processes started by a process, by those, and so on."""
    parents = _parents()
    found, front = [], {pid}
    while front:
        front = {child for child, parent in parents.items() if parent in front}
        found += sorted(front)
    return found


def _parents() -> dict[int, int]:
    return dict(_stat())


def _stat() -> Iterator[tuple[int, int]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            with suppress(OSError):  # it has ended meanwhile
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                yield int(folder.name), int(fields[1])
