"""Who we are among the processes of a run."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, PrefixStore, Store, TCPStore
from torch.distributed.rendezvous import rendezvous

from seatrial.dist.orphan import die_with_launcher
from seatrial.dist.watchdog.nodes import within
from seatrial.dist.watchdog.sight import record_collectives
from seatrial.errors import Preempted, StoppedAtOnce

_LEAVE_SECONDS = 20.0
"""How long the first rank stays for the others at the end: each only has to read what was told last."""

_FLEE_SECONDS = 2.0
"""How long a rank that failed tries to say that it leaves: a store on a node that was lost never answers."""

_POLL_SECONDS = 0.02


@dataclass(frozen=True)
class World:
    """Our place among ``size`` processes."""

    rank: int
    size: int
    device: torch.device
    local_size: int = 1
    """Processes of this node."""

    @property
    def is_first(self) -> bool:
        return self.rank == 0


@contextmanager
def joined_world(*, timeout_seconds: float, run: Path | None = None) -> Iterator[World]:
    """Join the processes torchrun started, or be a world of one. Collectives are real in both cases.

    A collective that waits longer than ``timeout_seconds`` for a peer raises instead of hanging. NCCL can be asked what
    it did last by the watchdog of ``run``.
    """
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    if torch.cuda.is_available():
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
        if run is not None:
            record_collectives(run)
    else:
        device = torch.device("cpu")
        backend = "gloo"
    die_with_launcher()
    timeout = timedelta(seconds=timeout_seconds)
    store = _store(rank, size, timeout)
    with _until_all_have_left(store, rank, size):
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=timeout)
        try:
            yield World(rank, size, device, int(os.environ.get("LOCAL_WORLD_SIZE", size)))
        finally:
            dist.destroy_process_group()


def _store(rank: int, size: int, timeout: timedelta) -> Store:
    """Where ranks find each other, and tell each other of their checkpoints: it lives in the first rank's process.

    torchrun's own store, which its workers are given, lives in torchrun: a torchrun that is stopped, or slow, would
    hold up every save. So it is only asked where the first rank's is. It may be kept over all restarts, and torch puts
    nothing before its keys: the address goes under a name of this restart alone, or a rank that restarts sooner than
    the first one would read that of a process that died. Elsewhere (nodes that come and go, no torchrun) the first
    rank hosts a store anyway, which is new each time.
    """
    if size == 1:
        return HashStore()
    store: Store
    store, _, _ = next(rendezvous("env://", timeout=timeout))
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return store
    meeting = PrefixStore(f"restart-{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
    if rank == 0:
        host = _own_address(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        own = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=timeout)
        meeting.set("first-rank", f"{host} {own.port}")
        return own
    host, port = meeting.get("first-rank").decode().split()
    return TCPStore(host, int(port), is_master=False, timeout=timeout)


def _own_address(master: str, port: int) -> str:
    """Where other nodes reach this process.

    They reach ``master``, and as a rule that is our own host, whose name will do. Where it is not, which nodes that
    meet anew may come to, it is the address that ``master`` sees us under.
    """
    with socket.create_connection((master, port)) as connection:
        ours, theirs = connection.getsockname()[0], connection.getpeername()[0]
    return master if ours == theirs or theirs.startswith("127.") else str(ours)


@contextmanager
def _until_all_have_left(store: Store, rank: int, size: int) -> Iterator[None]:
    """The first rank's process is the store: it ends last, unless it fails, or stops at once, when others may wait for
    it in vain: only when their connection to it breaks do they come to answer a signal."""
    all_is_well = False
    try:
        yield
        all_is_well = True
    except Preempted as error:
        all_is_well = not isinstance(error, StoppedAtOnce)
        raise
    finally:
        patience = _LEAVE_SECONDS if all_is_well else _FLEE_SECONDS
        within(patience, partial(_leave, store, size if rank == 0 and all_is_well else 0))


def _leave(store: Store, awaited: int) -> None:
    """Tell the store that we are done with it; return when ``awaited`` ranks are."""
    with suppress(RuntimeError):  # the first rank did not wait for us, and had its reason
        left = store.add("left", 1)
        while left < awaited:
            time.sleep(_POLL_SECONDS)
            left = store.add("left", 0)
