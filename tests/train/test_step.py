"""What a step tells, and when."""

import time
from pathlib import Path

import pytest
import torch

from seatrial.data.pack import Pack
from seatrial.errors import Preempted
from seatrial.model.packed import PackInput
from seatrial.rundir import RunDir
from seatrial.stop import StopRequest
from seatrial.train.loop import train
from seatrial.train.meter import skew_of
from seatrial.train.step import on_device
from tests.small import settings_for, torchrun, write_config


def test_a_stop_is_answered_one_step_later_and_loses_nothing(harbour: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked before the third step; it is read while the fourth is under way, so the fourth is the last."""
    asked = iter([False, False, True] + [False] * 10)
    monkeypatch.setattr(StopRequest, "reason", property(lambda _: "a test" if next(asked) else ""))
    settings = settings_for(harbour, checkpoint={"every_steps": 100})
    with pytest.raises(Preempted, match="saved step 4 of 8"):
        train(settings)
    run = RunDir(settings.run.dir)
    assert [record["step"] for record in run.read_metrics()] == [1, 2, 3, 4]


def test_a_record_says_what_the_step_did(harbour: Path) -> None:
    settings = settings_for(harbour, "two", optimizer={"steps": 3})
    began = time.monotonic()
    done = torchrun(write_config(settings, harbour / "two.yaml"), 2)
    elapsed = time.monotonic() - began
    assert done.returncode == 0, done.stderr[-2000:]
    records = RunDir(settings.run.dir).read_metrics()
    assert sum(record["seconds"] for record in records) < elapsed
    for record in records:
        assert record["trained_tokens_per_s"] < record["tokens_per_s"] < record["padded_tokens_per_s"]
        assert record["padded_tokens_per_s"] == pytest.approx(5 * 640 / record["seconds"])
        assert 0 <= record["data_seconds"] < record["seconds"]
        assert record["seconds_p50"] <= record["seconds_p90"] <= record["seconds_p99"]
        assert record["model_tflop_per_s_per_gpu"] > 0
        assert record["mfu"] is None  # no GPU, no ceiling
    # A step tells the times of the step before the one before it, so the first two know none.
    assert [record["rank_skew"] is None for record in records] == [True, True, False]
    assert records[-1]["rank_skew"] >= 1
    assert records[-1]["slowest_rank"] in (0, 1)


def test_skew_names_the_slowest() -> None:
    assert skew_of([1.0, 1.0, 1.5, 1.0]) == (1.5, 2)
    assert skew_of([1.0]) == (None, None)
    assert skew_of([0.0, 0.0]) == (None, None)


@pytest.mark.parametrize(
    "device",
    [
        "cpu",
        pytest.param(
            "cuda", marks=[pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")]
        ),
    ],
)
def test_packs_arrive_whole_and_in_order(device: str) -> None:
    tokens = 256
    packs = [
        Pack(
            ids_T=torch.full((tokens,), n),
            targets_T=torch.full((tokens,), n),
            positions_T=torch.arange(tokens),
            cu_seqlens=torch.tensor([0, tokens], dtype=torch.int32),
            max_seqlen=tokens,
            trained_tokens=tokens,
            tokens=tokens,
        )
        for n in range(7)
    ]
    arrived: list[PackInput] = list(on_device(packs, torch.device(device)))
    assert [int(pack.ids_T.unique()) for pack in arrived] == list(range(7))
