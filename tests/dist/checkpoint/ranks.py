"""Worlds of several sizes, one after another, that each load what the one before saved, check it, and save again.

python -m tests.dist.checkpoint.ranks CHAINS, JSON: a list of objects with ``folder``, ``place``, ``layout``, ``sizes``.

Forked from one process that has imported everything and computed nothing.
"""

import json
import os
import socket
import sys
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from seatrial.dist.checkpoint.checkpoints import Checkpoints
from seatrial.dist.checkpoint.layout import Box, WholeFile
from seatrial.dist.parallel import whole
from seatrial.dist.world import joined_world
from seatrial.rundir import RunDir
from seatrial.settings import CheckpointSettings
from tests.worlds import _forked, _together

# Seven rows over up to five ranks: uneven, and a rank with none.
SHAPES = {"weight/a": (7, 3), "weight/tall": (10, 2), "exp_avg/a": (7, 3), "step/a": (), "weight/adapter": (6, 5)}
ADAPTER = WholeFile(
    "adapter/adapter_model.safetensors",
    (
        Box("weight/adapter", (0, 0), (2, 5), torch.float32, "first"),
        Box("weight/adapter", (2, 0), (4, 5), torch.float32, "second"),
    ),
    {"adapter/adapter_config.json": b"{}"},
)


def values(step: int) -> dict[str, Tensor]:
    return {
        name: torch.arange(torch.Size(shape).numel(), dtype=torch.float32).reshape(shape) + 1000 * step
        for name, shape in SHAPES.items()
    }


def laid_out(layout: str, size: int) -> dict[str, Tensor]:
    """A state of zeros, sharded or held whole by every rank."""
    zeros = {name: torch.zeros(shape) for name, shape in SHAPES.items()}
    if layout == "replicate":
        return zeros
    mesh = init_device_mesh("cpu", (size,))
    return {name: distribute_tensor(t, mesh, [Shard(0)]) if t.dim() else t for name, t in zeros.items()}


def live(folder: Path, place: str, layout: str, size: int, step: int, port: int, rank: int) -> None:
    """Load step ``step - 1``, where there is one, and save ``step``."""
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(size)}
    with joined_world(timeout_seconds=30) as world:
        state = laid_out(layout, size)
        settings = CheckpointSettings(dir=place)
        with Checkpoints(RunDir(folder), world, state, settings, whole_file=ADAPTER, stall_seconds=30) as checkpoints:
            assert checkpoints.load_latest() == ({"step": step - 1} if step > 1 else None)
            expected = values(step - 1) if step > 1 else {name: torch.zeros(shape) for name, shape in SHAPES.items()}
            for name, tensor in state.items():
                assert torch.equal(whole(tensor), expected[name]), f"{name} on rank {rank} of {size}"
            for name, tensor in values(step).items():
                target = state[name]
                if isinstance(target, DTensor):
                    tensor = distribute_tensor(tensor, target.device_mesh, [Shard(0)])
                target.copy_(tensor)
            assert checkpoints.save(step, {"step": step}) == ""
            dist.barrier()


def main(chains: str) -> None:
    for chain in json.loads(chains):
        for number, size in enumerate(chain["sizes"]):
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            start = partial(live, Path(chain["folder"]), chain["place"], chain["layout"], size, number + 1, port)
            codes = _together([_forked(start, rank) for rank in range(size)])
            assert not any(codes), f"{chain}: {size} ranks ended with {codes}"


if __name__ == "__main__":
    main(sys.argv[1])
