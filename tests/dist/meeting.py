"""Two ranks and the one that started them, whose store they are told of, as torchrun's workers are.

python -m tests.dist.meeting: ends with 0 when all went as the assertions say.
"""

import os
import signal
import time

import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from seatrial.dist.checkpoint.exchange import Exchange
from seatrial.dist.world import joined_world
from tests.worlds import _forked, _together

LATE_SECONDS = 0.7
RESTARTS = 2


def main() -> None:
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": "2"}
    os.environ |= {"TORCHELASTIC_USE_AGENT_STORE": "True"}
    for restart in range(RESTARTS):
        os.environ["TORCHELASTIC_RESTART_COUNT"] = str(restart)
        codes = _together([_forked(live, rank) for rank in range(2)])
        assert codes == [0, 0], codes


def live(rank: int) -> None:
    """The launcher is stopped, and saves are told of nevertheless; the first rank stays until its word was heard."""
    os.environ["RANK"] = str(rank)
    began = time.monotonic()
    with joined_world(timeout_seconds=20):
        exchange = Exchange("token")
        dist.barrier()
        if rank == 0:
            os.kill(os.getppid(), signal.SIGSTOP)
            exchange.tell("outcome", "committed")
        else:
            time.sleep(LATE_SECONDS)
            assert exchange.hear(["outcome"]) == ["committed"]
    assert time.monotonic() - began > LATE_SECONDS
    os.kill(os.getppid(), signal.SIGCONT)


if __name__ == "__main__":
    main()
