"""Fill sharded models and hold them against whole ones; or fill one and tell how much memory it took.

python -m torch.distributed.run ... -m tests.model.streamed equal MODEL
python -m tests.model.streamed memory MODEL BASE
"""

import json
import sys
from pathlib import Path

import torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from seatrial.dist.world import World, joined_world
from seatrial.model.load import empty_for_training, fill_for_training
from seatrial.model.lora import apply_lora, quantise_base
from seatrial.model.packed import decoder_blocks
from seatrial.settings import LoraSettings, ModelSettings

LORA = LoraSettings(rank=4, alpha=6)


def structure(settings: ModelSettings, *, transposed: bool) -> PreTrainedModel:
    """The adapted model on the meta device."""
    model = empty_for_training(settings)
    apply_lora(model, targets=LORA.targets, rank=LORA.rank, alpha=LORA.alpha, seed=3)
    if settings.base == "fp8":
        quantise_base(model, transposed=transposed)
    return model


def equal(settings: ModelSettings, world: World) -> None:
    """Every process keeps of every parameter its rows of the whole model's, to the bit."""
    plain, sharded = structure(settings, transposed=False), structure(settings, transposed=False)
    mesh = init_device_mesh("cpu", (world.size,))
    for block in decoder_blocks(sharded):
        fully_shard(block, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    for model in (plain, sharded):
        fill_for_training(model, settings, device=world.device, seed=3)
    found = dict(sharded.named_parameters())
    for name, parameter in plain.named_parameters():
        expected, here = parameter.detach().chunk(world.size)[world.rank], found.pop(name).detach()
        assert isinstance(here, DTensor)
        assert here.to_local().dtype == expected.dtype, name
        assert torch.equal(here.to_local().view(torch.uint8), expected.view(torch.uint8)), name
    assert not found


def memory(settings: ModelSettings) -> None:
    """Peak memory of filling, less what the process had before, in bytes."""
    model = structure(settings, transposed=False)
    before = peak_bytes()
    filled = fill_for_training(model, settings, device=torch.device("cpu"), seed=3)
    kept = sum(parameter.nbytes for parameter in model.parameters())
    print(json.dumps({"peak": peak_bytes() - before, "kept": kept, "gb_per_s": filled.gb_per_s}))  # noqa: T201


def peak_bytes() -> int:
    """Of this program alone: getrusage's begins with what the process had before it became this program."""
    return next(
        int(line.split()[1]) * 1024
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("VmHWM")
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    task, path, *others = sys.argv[1:]
    if task == "memory":
        memory(ModelSettings.model_validate({"path": path, "base": others[0]}))
    else:
        with joined_world(timeout_seconds=60) as world:
            for base, weights in (("plain", "pretrained"), ("fp8", "pretrained"), ("fp8", "random")):
                equal(ModelSettings.model_validate({"path": path, "base": base, "weights": weights}), world)
