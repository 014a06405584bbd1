"""Store a trained base in bfloat16 beside its tokenizer: ``python recipes/tiny/ship.py RUN/model OUT_DIR``."""

import json
import shutil
import sys
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

from seatrial.records import write_json


def main(model: Path, out: Path) -> None:
    out.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy2(model / name, out / name)
    config = json.loads((model / "config.json").read_text())
    write_json(out / "config.json", config | {"dtype": "bfloat16"})
    weights = {name: tensor.to(torch.bfloat16) for name, tensor in load_file(model / "model.safetensors").items()}
    save_file(weights, out / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
