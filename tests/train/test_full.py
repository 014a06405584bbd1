"""Full fine-tuning: float8 and bfloat16 follow float32, on any number of processes, and through a stop."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from seatrial.errors import Preempted, UsageError
from seatrial.rundir import RunDir
from seatrial.settings import TrainSettings
from seatrial.train.loop import train
from seatrial.train.meter import Meter
from tests.small import settings_for, torchrun, write_config

EXACT = {"dtype": "float32", "compute": "float32"}


def full(folder: Path, run: str, plan: str = "replicate", **model: str) -> TrainSettings:
    return settings_for(
        folder, run, lora=None, model={**EXACT, **model}, parallel={"plan": plan},
        optimizer={"steps": 8, "learning_rate": 5e-3},
    )  # fmt: skip


def losses(run: Path) -> list[float]:
    return [record["loss"] for record in RunDir(run).read_metrics()]


def test_narrow_products_follow_the_float32_curve(harbour: Path) -> None:
    """One per cent is what a fine-tune in float8 may lose; over these steps the loss falls by far more."""
    train(full(harbour, "exact"))
    expected = losses(harbour / "exact")
    assert expected[-1] < 0.85 * expected[0]
    for name, model, tolerance in (("bf16", {"compute": "bfloat16"}, 5e-3), ("fp8", {"base": "fp8"}, 1e-2)):
        train(full(harbour, name, **model))
        found = losses(harbour / name)
        assert found == pytest.approx(expected, rel=tolerance), name
        assert found != expected


@pytest.mark.parametrize(
    ("model", "tolerance"),
    [({}, 1e-5), ({"base": "fp8", "compute": "bfloat16", "dtype": "bfloat16"}, 2e-2)],
)
def test_two_sharded_processes_train_as_one(harbour: Path, model: dict[str, str], tolerance: float) -> None:
    """Sums in another order move a weight's last bit, and that moves a float8 number now and then."""
    train(full(harbour, "alone", **model))
    settings = full(harbour, "two", "shard", **model)
    done = torchrun(write_config(settings, harbour / "two.yaml"), 2)
    assert done.returncode == 0, done.stderr[-2000:]
    assert losses(harbour / "two") == pytest.approx(losses(harbour / "alone"), abs=tolerance)


def test_one_sharded_process_keeps_float32_masters(harbour: Path) -> None:
    """Gathered in bfloat16; in the checkpoint float32, or updates smaller than a bfloat16 step would be lost."""
    train(full(harbour, "run", "shard", compute="bfloat16", dtype="bfloat16"))
    run = RunDir(harbour / "run")
    newest = sorted(run.checkpoints.iterdir())[-1]
    manifest = json.loads((newest / "manifest.json").read_text())
    assert {dtype for name, (dtype, _) in manifest["tensors"].items()} == {"float32"}
    train(full(harbour, "alone", compute="bfloat16", dtype="bfloat16"))
    assert losses(harbour / "run") == pytest.approx(losses(harbour / "alone"), abs=2e-2)


@pytest.mark.parametrize("plan", ["replicate", "shard"])
def test_a_stopped_run_resumes_to_the_same_bits(harbour: Path, plan: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = {"base": "fp8", "compute": "bfloat16", "dtype": "bfloat16"}
    train(full(harbour, "undisturbed", plan, **model))
    settings = full(harbour, "stopped", plan, **model)
    run = RunDir(settings.run.dir)
    write = Meter.write

    def write_and_ask(self: Meter, *record: Any) -> None:
        write(self, *record)
        if len(run.read_metrics()) == 4:
            run.stop_file.touch()

    monkeypatch.setattr(Meter, "write", write_and_ask)
    with pytest.raises(Preempted):
        train(settings)
    train(settings)
    assert [record["step"] for record in run.read_metrics()] == list(range(1, 9))
    assert losses(run.path) == losses(harbour / "undisturbed")
    expected, found = (load_file(path / "model" / "model.safetensors") for path in (harbour / "undisturbed", run.path))
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


@pytest.mark.parametrize("plan", ["replicate", "shard"])
def test_the_result_is_a_plain_model_in_the_type_asked_for(harbour: Path, plan: str) -> None:
    before = AutoModelForCausalLM.from_pretrained(harbour / "model", dtype=torch.float32)
    train(full(harbour, "run", plan, base="fp8", dtype="bfloat16"))
    stored = load_file(harbour / "run" / "model" / "model.safetensors")
    assert {tensor.dtype for tensor in stored.values()} == {torch.bfloat16}
    after = AutoModelForCausalLM.from_pretrained(harbour / "run" / "model")
    assert after.dtype == torch.bfloat16
    moved = dict(after.named_parameters())
    for name, parameter in before.named_parameters():
        change = (moved[name].float() - parameter).abs()
        assert 0 < float(change.max()) < 0.1, name


def test_what_cannot_be_trained_is_refused(harbour: Path) -> None:
    with pytest.raises(UsageError, match=r"model.base: nf4 is for weights frozen under lora; train in plain or fp8"):
        train(full(harbour, "four", base="nf4"))
    settings = full(harbour, "odd", base="fp8")
    odd = settings.model_copy(update={"data": settings.data.model_copy(update={"length": 633})})
    with pytest.raises(UsageError, match=r"data.length: 633 with model.base fp8; choose a multiple of 16"):
        train(odd)
