"""A training without a model: steps that end in a collective, under watch. Faults come as signals."""

import ctypes
import os
import signal
import time
from pathlib import Path

import torch
import torch.distributed as dist

from seatrial.dist.watchdog.start import watched_rank
from seatrial.dist.world import World, joined_world
from seatrial.errors import IntegrityError
from seatrial.rundir import RunDir


def main(where: str, hang_seconds: str, timeout_seconds: str = "600") -> None:
    """Step until ``where/finish`` exists. SIGWINCH keeps the interpreter's lock, SIGIO fails."""
    folder = Path(where)
    signal.signal(signal.SIGWINCH, lambda *_: _keep_the_lock())
    signal.signal(signal.SIGIO, lambda *_: _fail())
    run = RunDir(folder / "run")
    with joined_world(timeout_seconds=float(timeout_seconds)) as world:
        attempt = _begin(run, world)
        with watched_rank(run.path, world, attempt=attempt, hang_seconds=float(hang_seconds)) as heartbeat:
            step, going = 0, torch.ones(1)
            while going.item():
                heartbeat.phase("step", step)
                time.sleep(0.02)
                going[0] = not (folder / "finish").exists()
                heartbeat.mark()
                dist.all_reduce(going, op=dist.ReduceOp.MIN)
                step += 1
    if world.is_first:
        run.write_outcome("done", "all steps are done", 0)


def _begin(run: RunDir, world: World) -> int:
    attempt = torch.zeros(1, dtype=torch.int64)
    pids = [0] * world.size
    dist.all_gather_object(pids, os.getpid())
    if world.is_first:
        run.prepare()
        run.outcome.unlink(missing_ok=True)
        attempt[0] = 1 + sum(event["event"] == "start" for event in run.read_events())
        run.event("start", attempt=int(attempt), world_size=world.size, pids=pids)
    dist.broadcast(attempt, src=0)
    return int(attempt)


def _keep_the_lock() -> None:
    """In C, with the interpreter's lock, in a deadlock that no signal interrupts."""
    mutex = ctypes.create_string_buffer(64)
    for _ in range(2):
        ctypes.PyDLL(None).pthread_mutex_lock(mutex)


def _fail() -> None:
    raise IntegrityError("row 17 is torn")
