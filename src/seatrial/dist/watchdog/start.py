"""A rank under watch: it says what it does, can be asked for its stacks, and its node has a watchdog."""

import faulthandler
import os
import platform
import secrets
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch.distributed as dist

from seatrial.dist.heartbeat import Heartbeat, opened_heartbeat
from seatrial.dist.orphan import launcher
from seatrial.dist.watchdog.farewell import leave_error
from seatrial.dist.watchdog.process import Watched
from seatrial.dist.watchdog.sight import STACK_SIGNAL, forget_collectives, stack_file
from seatrial.dist.world import World
from seatrial.errors import Preempted

_PULSE_SECONDS = 0.5
_CLOSE_SECONDS = 1.0


@contextmanager
def watched_rank(run: Path, world: World, *, attempt: int, hang_seconds: float) -> Iterator[Heartbeat]:
    """All ranks enter; the first of each node starts its watchdog. What ends the block is this rank's last word."""
    generation = _generation(attempt)
    forget_collectives(run, world.rank)
    heartbeat_of = opened_heartbeat(run, world.rank, world.size, generation, platform.node())
    with heartbeat_of as memory, _writing_stacks(stack_file(run, world.rank)):
        heartbeat = Heartbeat(memory)
        heartbeat.phase("start")
        watchdog = Watchdog(_whom(run, world, attempt, generation, hang_seconds)) if _is_first_of_node() else None
        with _pulse(Heartbeat(memory, "pulse"), watchdog):
            try:
                yield heartbeat
                heartbeat.phase("done")
            except Preempted:
                heartbeat.phase("done")
                raise
            except BaseException as error:
                leave_error(run, generation, world.rank, error)
                heartbeat.phase("failed")
                raise
            finally:
                if watchdog is not None:
                    watchdog.close()


@dataclass
class Watchdog:
    """The process, started again when somebody ends it. It ends by itself once the ranks have."""

    watched: Watched

    def __post_init__(self) -> None:
        self._process = self._start()
        self._closed = False
        self._one_at_a_time = threading.Lock()

    @property
    def pid(self) -> int:
        return self._process.pid

    def keep(self) -> None:
        with self._one_at_a_time:
            if not self._closed and self._process.poll() is not None:
                self._process = self._start()

    def close(self) -> None:
        """Let it see that we ended. It stays as long as other ranks do, and is not started again once it has gone."""
        with self._one_at_a_time:
            self._closed = True
        assert self._process.stdin is not None
        self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSE_SECONDS)

    def _start(self) -> "subprocess.Popen[bytes]":
        argv = [sys.executable, "-m", "seatrial.dist.watchdog.process", self.watched.model_dump_json()]
        # A session of its own: a Ctrl-C and the end of our process group are not meant for it.
        return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, start_new_session=True)


def _generation(attempt: int) -> str:
    """One name for all ranks that train together, which no other attempt has, nor another run in the same place.

    Collective. Of 16 bytes, as much as a heartbeat has room for.
    """
    token = [f"{attempt % 10**7}-{secrets.token_hex(4)}"]
    dist.broadcast_object_list(token, src=0)
    return token[0]


def _whom(run: Path, world: World, attempt: int, generation: str, hang_seconds: float) -> Watched:
    return Watched(
        run=run.resolve(),
        attempt=attempt,
        generation=generation,
        first=world.rank,
        count=world.local_size,
        pid=os.getpid(),
        node=int(os.environ.get("GROUP_RANK", 0)),
        nodes=int(os.environ.get("GROUP_WORLD_SIZE", 1)),
        host=platform.node(),
        launcher=launcher(),
        hang_seconds=hang_seconds,
    )


def _is_first_of_node() -> bool:
    return int(os.environ.get("LOCAL_RANK", 0)) == 0


@contextmanager
def _writing_stacks(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        faulthandler.register(STACK_SIGNAL, file, all_threads=True)
        try:
            yield
        finally:
            faulthandler.unregister(STACK_SIGNAL)


@contextmanager
def _pulse(lane: Heartbeat, watchdog: Watchdog | None) -> Iterator[None]:
    """A thread that shows that the interpreter's lock can be had, and looks after the watchdog."""
    ended = threading.Event()

    def beat() -> None:
        while not ended.wait(_PULSE_SECONDS):
            lane.mark()
            if watchdog is not None:
                watchdog.keep()

    thread = threading.Thread(target=beat, name="pulse", daemon=True)
    lane.mark()
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
