"""Who we are among the processes of a run."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore


@dataclass(frozen=True)
class World:
    """Our place among ``size`` processes. ``attempt`` counts torchrun's restarts, from 0."""

    rank: int
    size: int
    device: torch.device
    attempt: int

    @property
    def is_first(self) -> bool:
        return self.rank == 0


@contextmanager
def joined_world(*, timeout_seconds: float) -> Iterator[World]:
    """Join the processes torchrun started, or be a world of one. Collectives are real in both cases.

    A collective that waits longer than ``timeout_seconds`` for a peer raises instead of hanging.
    """
    rank, size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    local_rank = int(os.environ.get("LOCAL_RANK", 0))
    if torch.cuda.is_available():
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
        backend = "cpu:gloo,cuda:nccl"
    else:
        device = torch.device("cpu")
        backend = "gloo"
    store = None if "MASTER_ADDR" in os.environ else HashStore()
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=timeout_seconds)
    )
    try:
        yield World(rank, size, device, int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0)))
    finally:
        dist.destroy_process_group()
