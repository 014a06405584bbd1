"""What is exported computes what was trained, under the libraries it is meant for."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from seatrial.errors import IntegrityError, UsageError
from seatrial.export.handover import export
from seatrial.model.adapter import WEIGHTS
from seatrial.rundir import RunDir
from seatrial.train.loop import train
from tests.small import settings_for

CPU = torch.device("cpu")


def trained(harbour: Path, *, lora: bool = True) -> RunDir:
    settings = settings_for(harbour, optimizer={"steps": 3})
    if not lora:
        settings = settings.model_copy(update={"lora": None})
    train(settings)
    return RunDir(settings.run.dir)


def test_adapter_and_merged_model_agree_with_the_trained_one(harbour: Path) -> None:
    out = harbour / "out"
    done = export(trained(harbour), out, merged=True, device=CPU)
    assert done.adapter_logit_difference is not None
    assert done.merged_logit_difference is not None
    assert max(done.adapter_logit_difference, done.merged_logit_difference) < 1e-4
    for directory in (out / "adapter", out / "merged"):
        card = (directory / "README.md").read_text()
        assert "--tool-call-parser hermes" in card
        assert "3 optimizer steps" in card
        assert json.loads((directory / "seatrial_template.json").read_text())["template"] == "tiny"
        assert (directory / "tokenizer.json").read_bytes() == (harbour / "model" / "tokenizer.json").read_bytes()
    assert "--enable-lora" in (out / "adapter" / "README.md").read_text()
    assert "--enable-lora" not in (out / "merged" / "README.md").read_text()


def test_a_full_training_is_exported_as_a_model(harbour: Path) -> None:
    done = export(trained(harbour, lora=False), harbour / "out", merged=False, device=CPU)
    assert done.adapter is None
    assert done.merged_logit_difference == 0.0
    # Training runs without a cache; whoever generates with the result must not.
    assert json.loads((harbour / "out" / "merged" / "config.json").read_text())["use_cache"] is True


def test_a_damaged_adapter_is_not_handed_over(harbour: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Damage between our reading and PEFT's, as a failing disk would do it."""
    run = trained(harbour)

    def copy_badly(source: Path, target: Path) -> Path:
        target.mkdir()
        for file in source.iterdir():
            (target / file.name).write_bytes(file.read_bytes())
        weights = load_file(target / WEIGHTS)
        save_file({name: tensor + 0.5 for name, tensor in weights.items()}, target / WEIGHTS)
        return target

    monkeypatch.setattr("shutil.copytree", copy_badly)
    with pytest.raises(IntegrityError, match="away from those of the trained model"):
        export(run, harbour / "out", merged=False, device=CPU)


def test_nothing_to_export_and_nowhere_to_put_it(harbour: Path) -> None:
    with pytest.raises(UsageError, match="not a run directory"):
        export(RunDir(harbour), harbour / "out", merged=False, device=CPU)
    run = trained(harbour)
    with pytest.raises(UsageError, match="is not empty; choose another --out"):
        export(run, harbour / "data", merged=False, device=CPU)
