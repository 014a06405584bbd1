"""AdamW over the trainable parameters, its schedule, and its state as named tensors."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from seatrial.errors import UsageError
from seatrial.settings import OptimizerSettings
from seatrial.train.adamw8bit import AdamW8bit


def build_optimizer(trainable: Mapping[str, nn.Parameter], settings: OptimizerSettings) -> torch.optim.Optimizer:
    """AdamW with its state made at once, so that a checkpoint has the same tensors before and after the first step.

    Raises:
        UsageError: 8-bit moments without a GPU or of sharded parameters.
    """
    if settings.kind == "adamw8bit":
        for parameter in trainable.values():
            if isinstance(parameter, DTensor):
                raise UsageError("optimizer.kind: adamw8bit has blocks that shards would cut; use adamw, or replicate")
            if not parameter.is_cuda:
                raise UsageError("optimizer.kind: adamw8bit needs an NVIDIA GPU, and there is none here; use adamw")
        return AdamW8bit(
            trainable.values(),
            lr=settings.learning_rate,
            betas=settings.betas,
            eps=settings.eps,
            weight_decay=settings.weight_decay,
        )
    optimizer = torch.optim.AdamW(
        trainable.values(),
        lr=settings.learning_rate,
        betas=settings.betas,
        eps=settings.eps,
        weight_decay=settings.weight_decay,
        fused=True,
    )
    for parameter in trainable.values():
        optimizer.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter),
            "exp_avg_sq": torch.zeros_like(parameter),
        }
    return optimizer


def training_state(trainable: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """Everything that training changes, by name: weights and moments. Loading into these tensors restores it."""
    state: dict[str, Tensor] = {}
    for name, parameter in trainable.items():
        state[f"weight/{name}"] = parameter.detach()
        for part, tensor in optimizer.state[parameter].items():
            state[f"{part}/{name}"] = tensor
    return state


def learning_rate(step: int, steps: int, settings: OptimizerSettings) -> float:
    """Rate of optimizer step ``step`` (from 0) of ``steps``.

    Warm-up rises linearly and reaches the full rate at its last step, so that the first step is not spent at zero.
    Then constant, or falling to zero one step after the last.
    """
    if step < settings.warmup_steps:
        return settings.learning_rate * (step + 1) / settings.warmup_steps
    progress = (step - settings.warmup_steps) / max(1, steps - settings.warmup_steps)
    match settings.schedule:
        case "constant":
            return settings.learning_rate
        case "linear":
            return settings.learning_rate * (1 - progress)
        case "cosine":
            return settings.learning_rate * 0.5 * (1 + math.cos(math.pi * progress))
