"""``seatrial export``: what a run learnt, in the layouts that PEFT, transformers and vLLM read."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from seatrial.errors import IntegrityError, Preempted, UsageError
from seatrial.export.card import write_card
from seatrial.model.adapter import load_adapter
from seatrial.model.load import DTYPES, copy_tokenizer, model_directory
from seatrial.model.lora import merge_lora
from seatrial.rundir import RunDir
from seatrial.settings import TrainSettings

# Logits of a merged model differ from base + adapter by the rounding of the sum into the weight's own type.
TOLERANCE = {"float32": 1e-3, "bfloat16": 0.5}


@dataclass(frozen=True)
class Exported:
    """What was written, and how far its logits are from those of the trained model (largest absolute difference)."""

    adapter: Path | None
    merged: Path | None
    adapter_logit_difference: float | None
    merged_logit_difference: float | None


def export(run: RunDir, out: Path, *, merged: bool, device: torch.device) -> Exported:
    """Write ``out/adapter`` (a LoRA run) and, when asked for or when there is no adapter, ``out/merged``.

    Each is loaded again with the plain library it is meant for, and its logits are compared with ours.

    Raises:
        UsageError: the run has no result yet, ``out`` is in use, or PEFT is needed for the comparison and missing.
        IntegrityError: what was written does not compute what was trained.
    """
    settings = TrainSettings.model_validate(run.read_settings())
    if not (run.adapter.is_dir() or run.model.is_dir()):
        raise UsageError(f"{run.path}: this run has no adapter or model yet; let `seatrial train` finish it")
    if out.exists() and any(out.iterdir()):
        raise UsageError(f"{out} is not empty; choose another --out")
    out.mkdir(parents=True, exist_ok=True)
    with _nothing_half(out):
        return _export(run, out, settings, merged=merged, device=device)


@contextmanager
def _nothing_half(out: Path) -> Iterator[None]:
    """An export that is stopped leaves the directory as it found it: empty."""
    try:
        yield
    except Preempted:
        for path in out.iterdir():
            shutil.rmtree(path)
        raise


def _export(run: RunDir, out: Path, settings: TrainSettings, *, merged: bool, device: torch.device) -> Exported:
    dtype = DTYPES[settings.model.dtype]
    lora = settings.lora is not None
    base = model_directory(settings.model.path) if lora else run.model

    model = _plain(base, dtype, device)
    probe_BT = _probe(model.config.vocab_size, device)
    if lora:
        load_adapter(model, run.adapter)
        model.to(device)  # type: ignore[arg-type]
    trained_BTV = _logits(model, probe_BT)

    adapter_dir = adapter_difference = merged_dir = merged_difference = None
    if lora:
        adapter_dir = out / "adapter"
        shutil.copytree(run.adapter, adapter_dir)
        template = copy_tokenizer(settings, adapter_dir)
        adapter_difference = _difference(_with_peft(base, adapter_dir, dtype, device), probe_BT, trained_BTV)
        write_card(adapter_dir, run, settings, template)
    if merged or not lora:
        merged_dir = out / "merged"
        merge_lora(model)
        model.save_pretrained(merged_dir)
        template = copy_tokenizer(settings, merged_dir)
        merged_difference = _difference(_plain(merged_dir, dtype, device), probe_BT, trained_BTV)
        write_card(merged_dir, run, settings, template)

    for directory, difference in ((adapter_dir, adapter_difference), (merged_dir, merged_difference)):
        if difference is not None and difference > TOLERANCE[settings.model.dtype]:
            raise IntegrityError(f"{directory}: logits are {difference:.3g} away from those of the trained model")
    return Exported(adapter_dir, merged_dir, adapter_difference, merged_difference)


def _plain(directory: Path, dtype: torch.dtype, device: torch.device) -> PreTrainedModel:
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype)
    assert isinstance(model, PreTrainedModel)
    model.eval()
    model.to(device)  # type: ignore[arg-type]
    return model


def _with_peft(base: Path, adapter: Path, dtype: torch.dtype, device: torch.device) -> torch.nn.Module:
    try:
        from peft import PeftModel
    except ImportError as error:
        raise UsageError("checking the adapter needs PEFT: pip install 'seatrial[demo]'") from error
    wrapped = PeftModel.from_pretrained(_plain(base, dtype, device), str(adapter))
    assert isinstance(wrapped, torch.nn.Module)
    return wrapped.eval()


def _probe(vocabulary: int, device: torch.device) -> Tensor:
    """Two rows of 64 token ids, always the same."""
    return torch.randint(0, vocabulary, (2, 64), generator=torch.Generator().manual_seed(0)).to(device)


def _logits(model: torch.nn.Module, probe_BT: Tensor) -> Tensor:
    with torch.no_grad():
        logits_BTV: Tensor = model(input_ids=probe_BT).logits
    return logits_BTV.float()


def _difference(model: torch.nn.Module, probe_BT: Tensor, trained_BTV: Tensor) -> float:
    return float((_logits(model, probe_BT) - trained_BTV).abs().max())
