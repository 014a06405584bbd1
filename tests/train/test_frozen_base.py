"""A quantised base trains to where a plain one does."""

import json
import statistics
from pathlib import Path

import pytest

from seatrial.data.conversation import encode
from seatrial.data.synthetic import Split, corpus
from seatrial.settings import TrainSettings
from seatrial.train.loop import train

STEPS, LAST = 60, 20
# Of the loss at the end, averaged over the last steps. What float8 was seen to cost: 0.8 % (results/frozen-base).
TOLERANCE = {"fp8": 0.02, "nf4": 0.08}


def last_loss(folder: Path, base: str) -> float:
    settings = TrainSettings.model_validate(
        {
            "run": {"dir": folder / base, "seed": 7},
            "model": {"path": "tiny", "dtype": "float32", "compute": "float32", "base": base},
            "data": {"train": folder / "data", "length": 512},
            "lora": {"rank": 16, "alpha": 64},
            "optimizer": {"learning_rate": 2e-3, "warmup_steps": 10, "steps": STEPS, "packs_per_step": 1},
            "checkpoint": {"every_steps": STEPS},
        }
    )
    train(settings)
    losses = [json.loads(line)["loss"] for line in (folder / base / "metrics.jsonl").read_text().splitlines()]
    assert len(losses) == STEPS
    return float(statistics.mean(losses[-LAST:]))


def test_a_fine_tune_of_the_tiny_base_ends_where_the_plain_one_does(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    rows = corpus(400, seed=5, split=Split.TRAIN)
    (tmp_path / "data" / "records.jsonl").write_bytes(b"".join(encode(row) for row in rows))
    plain = last_loss(tmp_path, "plain")
    for base, tolerance in TOLERANCE.items():
        assert last_loss(tmp_path, base) == pytest.approx(plain, rel=tolerance), base
