"""What a drill trains when it is given nothing: the shipped tiny model, narrowed, on made-up rows.

With the tiny model's tokenizer, template and architecture, and two narrow blocks of random weights in place of its six:
a training of a second, which can be broken hundreds of times.
"""

import json
from pathlib import Path

from seatrial.data.conversation import encode
from seatrial.data.synthetic import Split, corpus
from seatrial.model.load import TINY
from seatrial.records import write_json
from seatrial.settings import TrainSettings

STEPS = 12
SAVE_EVERY_STEPS = 4
"""Steps are so short here that a save takes some of them; one that comes due meanwhile waits."""

LONGEST_WAIT_SECONDS = 60
"""For another rank, in a drill of a user's own training."""

ROWS = 60
SEED = 11
NARROW = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
}


def tiny_settings(folder: Path, *, timeout_seconds: int) -> TrainSettings:
    """LoRA in exact mode; ranks wait ``timeout_seconds`` for each other.

    The model is written to ``folder/model``, rows to ``folder/data``.
    """
    model = folder / "model"
    model.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (model / name).write_bytes((TINY / name).read_bytes())
    write_json(model / "config.json", {**json.loads((TINY / "config.json").read_text()), **NARROW})
    data = folder / "data"
    data.mkdir(parents=True, exist_ok=True)
    rows = corpus(ROWS, seed=SEED, split=Split.TRAIN, tools=4, masked=0.0)
    (data / "records.jsonl").write_bytes(b"".join(encode(row) for row in rows))
    return TrainSettings.model_validate(
        {
            # Waits are as short as two busy cores allow: what hangs is then found in seconds.
            "run": {
                "dir": folder / "run",
                "seed": SEED,
                "exact": "on",
                "timeout_seconds": timeout_seconds,
                "hang_seconds": 3,
            },
            "model": {
                "path": str(model),
                "weights": "random",
                "dtype": "float32",
                "compute": "float32",
                "compile": "off",
            },
            "data": {"train": data, "length": 384},
            "lora": {"rank": 4, "alpha": 8, "dropout": 0.1, "targets": ["q_proj", "v_proj", "down_proj"]},
            # Five packs divide by no number of processes from 2 to 4.
            "optimizer": {"learning_rate": 2e-3, "warmup_steps": 2, "steps": STEPS, "packs_per_step": 5},
            "checkpoint": {"every_steps": SAVE_EVERY_STEPS, "keep": 2},
        }
    )


def shortened(settings: TrainSettings, folder: Path) -> TrainSettings:
    """A user's own training cut down to a few steps, in a directory of the drill's."""
    timeout_seconds = min(LONGEST_WAIT_SECONDS, settings.run.timeout_seconds)
    run = settings.run.model_copy(update={"dir": folder / "run", "timeout_seconds": timeout_seconds})
    optimizer = settings.optimizer.model_copy(update={"steps": STEPS, "epochs": None})
    checkpoint = settings.checkpoint.model_copy(
        update={"every_steps": SAVE_EVERY_STEPS, "mtbf_hours": None, "dir": None}
    )
    return settings.model_copy(update={"run": run, "optimizer": optimizer, "checkpoint": checkpoint})
