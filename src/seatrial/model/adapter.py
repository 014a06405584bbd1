"""Adapters on disk, in the layout of the PEFT library, so that any tool that reads PEFT reads ours."""

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from seatrial.errors import IntegrityError, UsageError
from seatrial.model.lora import adapters_by_layer, apply_lora
from seatrial.records import JsonObject, write_json
from seatrial.settings import LoraSettings

WEIGHTS = "adapter_model.safetensors"
CONFIG = "adapter_config.json"


def save_adapter(directory: Path, trained: Mapping[str, Tensor], lora: LoraSettings, base: str) -> None:
    """Write ``adapter_config.json`` and ``adapter_model.safetensors``.

    Args:
        trained: whole (unsharded) adapter tensors of single layers, as ``adapters_by_layer`` names them.
        base: what ``base_model_name_or_path`` shall say.
    """
    directory.mkdir(parents=True, exist_ok=True)
    tensors = {peft_name(name): tensor.detach().float().cpu().contiguous() for name, tensor in trained.items()}
    save_file(tensors, directory / WEIGHTS, metadata={"format": "pt"})
    write_json(directory / CONFIG, adapter_config(lora, base))


def adapter_config(lora: LoraSettings, base: str) -> JsonObject:
    """What PEFT reads from ``adapter_config.json``."""
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": lora.dropout,
        "target_modules": list(lora.targets),
        "bias": "none",
        "fan_in_fan_out": False,
        "inference_mode": True,
    }


def read_adapter_config(directory: Path) -> LoraSettings:
    """Rank, alpha and targets of an adapter on disk.

    Raises:
        UsageError: the directory holds no adapter.
    """
    if not (directory / CONFIG).is_file():
        raise UsageError(f"{directory}: no {CONFIG}, so this is not an adapter")
    config = json.loads((directory / CONFIG).read_text())
    return LoraSettings(rank=config["r"], alpha=config["lora_alpha"], targets=tuple(sorted(config["target_modules"])))


def load_adapter(model: nn.Module, directory: Path) -> None:
    """Put the adapter of ``directory`` on a plain ``model``.

    Raises:
        IntegrityError: a tensor is missing, left over, or has another shape than this model wants.
    """
    lora = read_adapter_config(directory)
    apply_lora(model, targets=lora.targets, rank=lora.rank, alpha=lora.alpha, seed=0)
    stored = load_file(directory / WEIGHTS)
    wanted = adapter_parameters(model)
    if different := {peft_name(name) for name in wanted} ^ stored.keys():
        raise IntegrityError(f"{directory}: adapter and model disagree on {sorted(different)[0]} and others")
    for name, parameter in wanted.items():
        tensor = stored[peft_name(name)]
        if tensor.shape != parameter.shape:
            raise IntegrityError(f"{directory}: {name} is {tuple(tensor.shape)}, wanted {tuple(parameter.shape)}")
        parameter.copy_(tensor)


def adapter_parameters(model: nn.Module) -> dict[str, Tensor]:
    """The trainable halves of every adapted layer, as views of the parameters, by name of the plain layer."""
    return adapters_by_layer(model, {name: parameter.detach() for name, parameter in model.named_parameters()})


def peft_name(name: str) -> str:
    """PEFT's name of a tensor that ``adapters_by_layer`` names."""
    layer, _, half = name.rpartition(".")
    return f"base_model.model.{layer}.lora_{'A' if half == 'a_RI' else 'B'}.weight"
