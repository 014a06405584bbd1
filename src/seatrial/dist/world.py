"""Who we are among the processes of a run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from seatrial.dist.orphan import die_with_launcher
from seatrial.dist.watchdog.sight import record_collectives


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
    dist.init_process_group(backend, store=_store(timeout), rank=rank, world_size=size, timeout=timeout)
    try:
        yield World(rank, size, device, int(os.environ.get("LOCAL_WORLD_SIZE", size)))
    finally:
        dist.destroy_process_group()


def _store(timeout: timedelta) -> Store:
    """Where ranks find each other: torchrun's store, under a name of this restart alone.

    torchrun may keep one store over all restarts, and torch 2.13 puts nothing before its keys: a rank that restarts
    sooner than its peer then reads the address of the peer that died, and never connects. Where the first rank hosts a
    store of its own, that is new each time; and elastic nodes count their restarts each for itself.
    """
    if "MASTER_ADDR" not in os.environ:
        return HashStore()
    store: Store
    store, _, _ = next(rendezvous("env://", timeout=timeout))
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return store
    return PrefixStore(f"restart-{os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)}", store)
