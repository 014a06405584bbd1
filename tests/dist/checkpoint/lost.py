"""A training fails while its save waits for a rank that does not answer any more, as one whose node lost power.

python -m tests.dist.checkpoint.lost FOLDER: ends with 0 when all went as the assertions say.
"""

import os
import signal
import socket
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import torch.distributed as dist

from seatrial.dist.checkpoint import checkpoints
from seatrial.dist.checkpoint.checkpoints import LEAVE_SECONDS, Checkpoints
from seatrial.dist.world import _FLEE_SECONDS, joined_world
from seatrial.rundir import RunDir
from seatrial.settings import CheckpointSettings
from tests.dist.checkpoint.ranks import laid_out
from tests.worlds import _forked

SLACK_SECONDS = 5.0


def main(folder: str) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    first, second = (_forked(partial(live, Path(folder), port), rank) for rank in range(2))
    _, status = os.waitpid(second, 0)
    os.kill(first, signal.SIGKILL)
    os.waitpid(first, 0)
    assert os.waitstatus_to_exitcode(status) == 0


def live(folder: Path, port: int, rank: int) -> None:
    """The first rank, which hosts the store, stops: its connections stay open, and nobody reads from them."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": "2"}
    checkpoints.ABANDON_SECONDS = 0.5
    began = 0.0
    with (
        pytest.raises(ZeroDivisionError),
        joined_world(timeout_seconds=60) as world,
        Checkpoints(RunDir(folder), world, laid_out("replicate", 2), CheckpointSettings()) as saved,
    ):
        saved.load_latest()
        dist.barrier()
        if rank == 0:
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(0.5)
        saved.stage(1)
        saved.write({})
        began = time.monotonic()
        raise ZeroDivisionError
    assert time.monotonic() - began < checkpoints.ABANDON_SECONDS + LEAVE_SECONDS + _FLEE_SECONDS + SLACK_SECONDS


if __name__ == "__main__":
    main(*sys.argv[1:])
