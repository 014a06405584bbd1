"""One holder of a directory at a time: on one machine by the kernel, between machines by what the holder says."""

import fcntl
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from seatrial.errors import UsageError

SIGN_SECONDS = 8.0
"""A holder on another machine gives a sign of life every 2 s; four in a row are not late by chance."""

_LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Holder:
    """A process. ``boot`` is another after each start of its machine's kernel."""

    pid: int
    host: str
    boot: str

    @classmethod
    def ourselves(cls) -> "Holder":
        return cls(os.getpid(), platform.node(), _boot())

    @property
    def name(self) -> str:
        return f"process {self.pid} on {self.host}"


def must_be_dead(holder: Holder, us: Holder) -> bool:
    """Of a holder whose lock the kernel does not know: whether that alone proves that it is gone.

    On the machine that we are on the kernel knows every lock, and frees that of a process that ends. A machine of the
    same name that has started anew since has no process of before. About another machine it says nothing: on some
    network file systems locks are each machine's own.
    """
    return holder.boot == us.boot or holder.host == us.host


@contextmanager
def locked(
    directory: Path, sign_of_life: Callable[[], object], *, sign_seconds: float = SIGN_SECONDS
) -> Iterator[Holder | None]:
    """Hold ``directory``; yields the dead holder that it was taken over from, if there was one.

    Args:
        sign_of_life: something that changes as long as a holder on another machine lives.
        sign_seconds: how long it may stay the same.

    Raises:
        UsageError: another process holds it; says which.
    """
    directory.mkdir(parents=True, exist_ok=True)
    us = Holder.ourselves()
    with (directory / ".lock").open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise _in_use(directory, _read(file.name)) from error
        before = _read(file.name)
        if before is not None and not must_be_dead(before, us):
            if _changes(sign_of_life, sign_seconds):
                raise _in_use(directory, before)
            _write(file.name, us)
            time.sleep(_LOOK_SECONDS)
            if (other := _read(file.name)) != us:  # two have seen the same holder die
                raise _in_use(directory, other)
        _write(file.name, us)
        try:
            yield before
        finally:
            Path(file.name).write_text("")


def _changes(sign_of_life: Callable[[], object], seconds: float) -> bool:
    """Seen with our own clock: those of two machines differ."""
    first = sign_of_life()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(min(_LOOK_SECONDS, seconds / 4))
        if sign_of_life() != first:
            return True
    return False


def _in_use(directory: Path, holder: Holder | None) -> UsageError:
    name = holder.name if holder is not None else "another process"
    return UsageError(f"{directory} is in use by {name}; stop it or choose another run.dir")


def _read(path: str) -> Holder | None:
    """None when nobody holds it, or when the file was cut off in being written."""
    try:
        return Holder(**json.loads(Path(path).read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _write(path: str, holder: Holder) -> None:
    Path(path).write_text(json.dumps(asdict(holder)))


def _boot() -> str:
    """The kernel's random name of this start; the host's name where there is none."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return platform.node()
