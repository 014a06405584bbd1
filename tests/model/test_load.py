"""In which number format a model is scored."""

from pathlib import Path
from typing import Literal

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from seatrial.model.adapter import adapter_parameters, save_adapter
from seatrial.model.load import load_for_inference
from seatrial.model.lora import apply_lora
from seatrial.records import write_json
from seatrial.rundir import RunDir
from seatrial.settings import LoraSettings
from tests.small import settings_for, write_model

# Stands for a GPU: it is no CPU, and every machine has it.
ELSEWHERE = torch.device("meta")
LORA = LoraSettings(rank=2, alpha=4)


def stored_in(dtype: torch.dtype, folder: Path) -> PreTrainedModel:
    """The small model, with its weights stored in ``dtype`` in ``folder/model``."""
    model = AutoModelForCausalLM.from_pretrained(write_model(folder / "model"), dtype=dtype)
    assert isinstance(model, PreTrainedModel)
    model.save_pretrained(folder / "model")
    return model


@pytest.mark.parametrize(("device", "dtype"), [(ELSEWHERE, torch.bfloat16), (torch.device("cpu"), torch.float32)])
def test_a_plain_model(device: torch.device, dtype: torch.dtype, tmp_path: Path) -> None:
    stored_in(torch.bfloat16, tmp_path)
    assert load_for_inference(tmp_path / "model", device=device)[0].dtype == dtype


@pytest.mark.parametrize("trained_in", ["float32", "bfloat16"])
def test_a_run_is_scored_in_the_type_that_it_was_trained_in(
    trained_in: Literal["float32", "bfloat16"], tmp_path: Path
) -> None:
    base = stored_in(torch.bfloat16, tmp_path)
    settings = settings_for(tmp_path, model={"dtype": trained_in}, lora=LORA.model_dump())
    run = RunDir(settings.run.dir)
    run.prepare()
    write_json(run.settings, settings.model_dump(mode="json"))
    apply_lora(base, targets=LORA.targets, rank=LORA.rank, alpha=LORA.alpha, seed=0)
    save_adapter(run.adapter, adapter_parameters(base), LORA, settings.model.path)
    assert load_for_inference(run.path, device=ELSEWHERE)[0].dtype == getattr(torch, trained_in)
    assert load_for_inference(run.path, device=torch.device("cpu"))[0].dtype == torch.float32
