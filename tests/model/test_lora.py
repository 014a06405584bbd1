"""Adapters: nothing at first, merged without a trace, and PEFT's own on disk."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from seatrial.errors import IntegrityError, UsageError
from seatrial.model.adapter import WEIGHTS, adapter_parameters, load_adapter, save_adapter
from seatrial.model.lora import AdaptedLinear, adapted_layers, apply_lora, merge_lora
from seatrial.settings import LoraSettings
from tests.small import write_model

LORA = LoraSettings(rank=4, alpha=6)


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


def plain(model_dir: Path) -> PreTrainedModel:
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    assert isinstance(model, PreTrainedModel)
    return model


def adapted(model_dir: Path, seed: int = 0) -> PreTrainedModel:
    model = plain(model_dir)
    apply_lora(model, targets=LORA.targets, rank=LORA.rank, alpha=LORA.alpha, seed=seed)
    return model


def trained(model_dir: Path) -> PreTrainedModel:
    """Adapted, with updates that are not zero."""
    model = adapted(model_dir)
    torch.manual_seed(1)
    for parameter in adapter_parameters(model).values():
        parameter += 0.1 * torch.randn_like(parameter)
    return model


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        out: torch.Tensor = model(input_ids=torch.arange(3, 60).unsqueeze(0)).logits
    return out


def test_a_fresh_adapter_changes_nothing(model_dir: Path) -> None:
    assert torch.equal(logits(adapted(model_dir)), logits(plain(model_dir)))


def test_only_adapters_are_trainable(model_dir: Path) -> None:
    model = adapted(model_dir)
    trainable = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trainable == {f"{name}.{half}" for name, _ in adapted_layers(model) for half in ("a_GI", "b_OR")}
    assert len(trainable) == 2 * 4 * 2  # layers of two blocks: query, key and value; output; gate and up; down
    assert len(adapter_parameters(model)) == 2 * 7 * 2


def test_an_adapter_depends_on_seed_and_name_alone(model_dir: Path) -> None:
    whole = adapter_parameters(adapted(model_dir))
    part_of = plain(model_dir)
    apply_lora(part_of, targets=("v_proj",), rank=LORA.rank, alpha=LORA.alpha, seed=0)
    part = adapter_parameters(part_of)
    assert part
    assert all(torch.equal(parameter, whole[name]) for name, parameter in part.items())
    other = adapter_parameters(adapted(model_dir, seed=1))
    assert not any(torch.equal(other[name], whole[name]) for name in whole if name.endswith("a_RI"))


def test_merged_equals_base_plus_adapter(model_dir: Path) -> None:
    model = trained(model_dir)
    expected = logits(model)
    assert not torch.allclose(expected, logits(plain(model_dir)), atol=1e-3)
    merge_lora(model)
    assert not list(adapted_layers(model))
    torch.testing.assert_close(logits(model), expected, rtol=1e-4, atol=1e-5)


def test_a_merged_bfloat16_weight_is_rounded_once() -> None:
    base = torch.nn.Linear(8, 8, bias=True, dtype=torch.bfloat16)
    layer = AdaptedLinear({"up": base}, 2, 4.0, [torch.Generator().manual_seed(0)])
    layer.b_OR.data.fill_(0.01)
    exact = base.weight.float() + layer.b_OR @ layer.a_GI * layer.scale
    merged = layer.merged()["up"]
    assert torch.equal(merged.weight, exact.to(torch.bfloat16))
    assert torch.equal(merged.bias, base.bias)


def test_an_adapter_survives_the_disk(model_dir: Path, tmp_path: Path) -> None:
    model = trained(model_dir)
    save_adapter(tmp_path / "adapter", adapter_parameters(model), LORA, str(model_dir))
    again = plain(model_dir)
    load_adapter(again, tmp_path / "adapter")
    assert torch.equal(logits(again), logits(model))


def test_peft_reads_what_we_write(model_dir: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="PEFT is a test dependency: pip install -e '.[test]'")
    model = trained(model_dir)
    save_adapter(tmp_path / "adapter", adapter_parameters(model), LORA, str(model_dir))
    theirs = peft.PeftModel.from_pretrained(plain(model_dir), str(tmp_path / "adapter"))
    torch.testing.assert_close(logits(theirs), logits(model), rtol=1e-4, atol=1e-5)


def test_we_read_what_peft_writes(model_dir: Path, tmp_path: Path) -> None:
    peft = pytest.importorskip("peft", reason="PEFT is a test dependency: pip install -e '.[test]'")
    config = peft.LoraConfig(
        r=3, lora_alpha=5, target_modules=["q_proj", "down_proj"], task_type="CAUSAL_LM", init_lora_weights=False
    )
    theirs = peft.get_peft_model(plain(model_dir), config)
    theirs.save_pretrained(tmp_path / "adapter")
    ours = plain(model_dir)
    load_adapter(ours, tmp_path / "adapter")
    torch.testing.assert_close(logits(ours), logits(theirs), rtol=1e-4, atol=1e-5)


def test_an_adapter_of_another_model_is_refused(model_dir: Path, tmp_path: Path) -> None:
    parameters = dict(adapter_parameters(trained(model_dir)))
    name = next(iter(parameters))
    save_adapter(tmp_path / "lacking", {n: p for n, p in parameters.items() if n != name}, LORA, "base")
    with pytest.raises(IntegrityError, match="adapter and model disagree"):
        load_adapter(plain(model_dir), tmp_path / "lacking")
    parameters[name] = torch.zeros(1, 1)
    save_adapter(tmp_path / "other", parameters, LORA, "base")
    with pytest.raises(IntegrityError, match=r"is \(1, 1\), wanted"):
        load_adapter(plain(model_dir), tmp_path / "other")
    with pytest.raises(UsageError, match=r"no adapter_config\.json"):
        load_adapter(plain(model_dir), tmp_path)
    assert not (tmp_path / WEIGHTS).exists()


def test_a_target_that_is_not_there_is_named_with_those_that_are(model_dir: Path) -> None:
    with pytest.raises(UsageError, match=r"no linear layer is called qkv_proj; this model has down_proj, gate_proj"):
        apply_lora(plain(model_dir), targets=("q_proj", "qkv_proj"), rank=2, alpha=2.0, seed=0)
