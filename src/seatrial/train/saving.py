"""What the checkpoints of a training say of it: whose they are, and the adapter in the layout that PEFT reads."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from seatrial.data.dataset import TokenRows
from seatrial.dist.checkpoint.layout import Box, WholeFile
from seatrial.model.adapter import CONFIG, WEIGHTS, adapter_config, peft_name
from seatrial.model.load import model_directory
from seatrial.model.lora import adapters_by_layer
from seatrial.records import JsonObject
from seatrial.settings import GuardSettings, TrainSettings

ADAPTER = "adapter"
"""Folder of a checkpoint that PEFT loads."""

_SAMPLE_BYTES = 64 * 1024

# May differ between the attempts of one run: where things are and how often we save, never what is computed.
_FREE_TO_CHANGE = {
    "run": {"dir", "timeout_seconds", "hang_seconds", "grace_seconds", "max_attempts_without_progress", "acceptance"},
    "model": {"activation_checkpointing"},
    "parallel": {"plan", "shard_size"},
    "checkpoint": {"every_steps", "mtbf_hours", "dir", "keep"},
    "guard": set(GuardSettings.model_fields),  # of a run that failed by them, they are what one would change
}


def settings_that_matter(settings: JsonObject) -> JsonObject:
    """Those that decide what is computed, in sections as ``settings.json`` has them."""
    return {
        name: {key: value for key, value in section.items() if key not in _FREE_TO_CHANGE.get(name, set())}
        if isinstance(section, dict)
        else section
        for name, section in settings.items()
    }


def identity(settings: TrainSettings, data: TokenRows) -> JsonObject:
    """What must be the same for a checkpoint to be continued: model, rows, and the settings that change the numbers."""
    dumped = settings_that_matter(settings.model_dump(mode="json"))
    for section, key in (("model", "path"), ("data", "train")):
        dumped[section] = {
            name: value for name, value in dumped[section].items() if name != key
        }  # a place, not a thing
    return {
        "model": model_fingerprint(model_directory(settings.model.path), settings.model.weights),
        "data": data.fingerprint(length=settings.data.length, seed=settings.run.seed),
        "settings": dumped,
    }


def model_fingerprint(directory: Path, weights: str) -> str:
    """sha256 over config.json and, of pretrained weights, each file's name, size and samples from three places.

    Two trainings of one architecture differ nearly everywhere, so that samples tell them apart.
    """
    digest = hashlib.sha256((directory / "config.json").read_bytes())
    for path in sorted(directory.glob("*.safetensors")) if weights == "pretrained" else ():
        size = path.stat().st_size
        digest.update(f"{path.name} {size}".encode())
        with path.open("rb") as file:
            for at in (0, size // 2, max(0, size - _SAMPLE_BYTES)):
                file.seek(at)
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def adapter_file(model: nn.Module, trainable: Mapping[str, Tensor], settings: TrainSettings) -> WholeFile | None:
    """The weights of ``training_state`` under PEFT's names, which a checkpoint then holds once. None without LoRA."""
    if settings.lora is None:
        return None
    shapes = {name: torch.empty(tensor.shape, device="meta") for name, tensor in trainable.items()}
    names = {id(tensor): name for name, tensor in shapes.items()}
    boxes = []
    for name, rows in adapters_by_layer(model, shapes).items():
        assert rows._base is not None, "adapters_by_layer gives views"
        width = rows.shape[1]
        box = (rows.storage_offset() // width, 0), tuple(rows.shape), torch.float32
        boxes.append(Box(f"weight/{names[id(rows._base)]}", *box, peft_name(name)))
    config = json.dumps(adapter_config(settings.lora, settings.model.path), indent=2) + "\n"
    return WholeFile(f"{ADAPTER}/{WEIGHTS}", tuple(boxes), {f"{ADAPTER}/{CONFIG}": config.encode()})
