"""Which plan a training runs under: what the settings say, held against the GPUs that are there."""

import json
from dataclasses import asdict

import torch
import torch.distributed as dist
from rich.console import Console

from seatrial.dist.plan import Choice, Gpus, Job, Shape, choose
from seatrial.dist.world import World
from seatrial.model.load import DTYPES, model_directory
from seatrial.model.mlp import will_fuse
from seatrial.records import JsonObject
from seatrial.settings import TrainSettings
from seatrial.train.exact import Exactness


def choose_layout(settings: TrainSettings, world: World, exactness: Exactness) -> Choice:
    """Before anything is loaded, from the model's config.json alone. Collective; all ranks get the same answer.

    Raises:
        UsageError: the model or the shard size is none that we know.
        ImpossibleConfiguration: no plan fits the GPUs.
    """
    config = json.loads((model_directory(settings.model.path) / "config.json").read_text())
    return choose(
        Shape.of(config),
        Job(
            rank=settings.lora.rank if settings.lora is not None else 0,
            pack_tokens=settings.data.length,
            base=settings.model.base,
            targets=settings.lora.targets if settings.lora is not None else (),
            weight_bytes=DTYPES[settings.model.dtype].itemsize if settings.lora is not None else 4,  # masters
            compute_bytes=DTYPES[settings.model.compute].itemsize,
            moment_bytes=2 if settings.optimizer.kind == "adamw8bit" else 8,
            order_free=exactness.order_free,
            repeatable=exactness.repeatable,
            packs_per_gpu=-(-settings.optimizer.packs_per_step // world.size),
            fused_mlp=world.device.type == "cuda" and _fuses_mlps(config, settings),
        ),
        Gpus(world.size, world.local_size, smallest_memory(world)),
        plan=settings.parallel.plan,
        checkpointing=settings.model.activation_checkpointing,
        shard_size=settings.parallel.shard_size,
    )


def announce(choice: Choice, world: World) -> None:
    """Say on the terminal what was chosen and why, where there was a choice."""
    if world.is_first and world.device.type == "cuda":
        Console(stderr=True, highlight=False).print(f"layout: {choice.layout}: {choice.why}")


def as_event(choice: Choice) -> JsonObject:
    """For events.jsonl."""
    return {**asdict(choice.layout), "estimated_bytes": choice.estimate.total, "why": choice.why}


def _fuses_mlps(config: JsonObject, settings: TrainSettings) -> bool:
    lora = settings.lora
    if lora is None or lora.dropout > 0:
        return False
    return will_fuse(config, lora.targets, lora.rank, DTYPES[settings.model.compute])


def smallest_memory(world: World) -> int:
    """Bytes of the smallest GPU, so that all ranks choose alike; 0 on CPUs."""
    if world.device.type != "cuda":
        return 0
    total = torch.tensor(torch.cuda.mem_get_info(world.device)[1], device=world.device)
    dist.all_reduce(total, op=dist.ReduceOp.MIN)
    return int(total)
