"""A model and rows so small that a training takes a second."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import LlamaConfig, LlamaForCausalLM

from seatrial.data.conversation import encode
from seatrial.data.synthetic import Split, corpus
from seatrial.model.load import TINY
from seatrial.records import write_json
from seatrial.settings import TrainSettings


def write_model(folder: Path) -> Path:
    """Random weights of two narrow blocks, with the tiny model's tokenizer and template."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=2048,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=2,
        pad_token_id=0,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (folder / name).write_bytes((TINY / name).read_bytes())
    return folder


def write_rows(folder: Path, rows: int = 40, seed: int = 1) -> Path:
    """Synthetic training rows in ``folder/records.jsonl``."""
    folder.mkdir(parents=True, exist_ok=True)
    made = corpus(rows, seed=seed, split=Split.TRAIN, tools=4, masked=0.0)
    (folder / "records.jsonl").write_bytes(b"".join(encode(row) for row in made))
    return folder


def settings_for(folder: Path, name: str = "run", /, **sections: Mapping[str, Any] | None) -> TrainSettings:
    """A short float32 training in ``folder/name``, on ``folder/model`` and ``folder/data``; sections are merged in."""
    values: dict[str, Any] = {
        "run": {"dir": folder / name, "timeout_seconds": 30},
        "model": {"path": str(folder / "model"), "dtype": "float32", "compute": "float32"},
        "data": {"train": folder / "data", "length": 640},
        "lora": {"rank": 4, "alpha": 8},
        "optimizer": {"learning_rate": 1e-2, "steps": 8, "packs_per_step": 5},
        "checkpoint": {"every_steps": 3},
    }
    for key, section in sections.items():
        values[key] = {**values.get(key, {}), **section} if section is not None else None
    return TrainSettings.model_validate(values)


def write_config(settings: TrainSettings, file: Path) -> Path:
    """As a settings file; JSON is YAML."""
    write_json(file, settings.model_dump(mode="json"))
    return file


def torchrun(config: Path, processes: int) -> subprocess.CompletedProcess[str]:
    """``seatrial train`` on several local processes, to its end."""
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return subprocess.run(
        [*launch, "-m", "seatrial", "train", str(config)], capture_output=True, text=True, timeout=240, check=False
    )
