"""What the demo trains, and how much of it: every number that was chosen, in one place.

The sizes are what two CPU cores can do in five minutes; results/ has the measurements they were chosen by.
"""

from pathlib import Path

from seatrial.data.synthetic import Mix, Split
from seatrial.settings import (
    CheckpointSettings,
    DataSettings,
    LoraSettings,
    ModelSettings,
    OptimizerSettings,
    RunSettings,
    TrainSettings,
)

SEED = 7
TOOLS = 6
MASKED_SHARE = 0.0
MIX = Mix(single=0.2, multiple=0.3, parallel=0.16, irrelevant=0.18, missing_argument=0.08, multi_turn=0.08)
TRAIN_ROWS = 2700
HEADLINE = Split.UNSEEN_VALUES
HELD_OUT = (HEADLINE, Split.IID, Split.UNSEEN_PHRASINGS, Split.UNSEEN_TOOLS)
EVAL_BATCH = 75
MAX_NEW_TOKENS = 224  # three calls
ACCEPT_BUDGET_SECONDS = 12.0


def held_out_rows(split: Split) -> int:
    """The split of the headline is scored on more rows, for a narrower interval."""
    return 135 if split is HEADLINE else 35


def train_settings(out: Path) -> TrainSettings:
    """LoRA on the tiny base, in float32. Not compiled: that would take longer than the steps it shortens."""
    return TrainSettings(
        run=RunSettings(dir=out / "run", seed=SEED, timeout_seconds=60),
        model=ModelSettings(path="tiny", dtype="float32", compute="float32", compile="off"),
        data=DataSettings(train=out / "data", length=512),
        lora=LoraSettings(rank=32, alpha=128.0),
        optimizer=OptimizerSettings(learning_rate=2e-3, schedule="linear", warmup_steps=10, epochs=1, packs_per_step=2),
        checkpoint=CheckpointSettings(every_steps=50),
    )
