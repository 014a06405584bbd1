"""Weights that stream into a model are those that are loaded and then adapted, quantised and sharded."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel, Qwen3Config

from seatrial.errors import IntegrityError, UsageError
from seatrial.model import stream
from seatrial.model.load import empty_for_training, empty_model, fill_for_training
from seatrial.model.lora import apply_lora, quantise_base
from seatrial.model.stored import INDEX, SINGLE
from seatrial.model.stream import PIECE_BYTES, fill_random
from seatrial.records import write_json
from seatrial.settings import LoraSettings, ModelSettings
from tests.small import write_model

CPU = torch.device("cpu")
LORA = LoraSettings(rank=4, alpha=6)
ROOT = Path(__file__).parents[2]


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the tensors of a small model are read in many pieces, that begin and end at any row."""
    monkeypatch.setattr(stream, "PIECE_BYTES", 1000)


def streamed(directory: Path, **settings: str) -> PreTrainedModel:
    asked = ModelSettings.model_validate({"path": str(directory), **settings})
    model = empty_for_training(asked)
    fill_for_training(model, asked, device=CPU, seed=0)
    return model


def loaded(directory: Path, dtype: str = "bfloat16") -> PreTrainedModel:
    model = AutoModelForCausalLM.from_pretrained(directory, dtype=getattr(torch, dtype))
    assert isinstance(model, PreTrainedModel)
    return model


def assert_equal(found: PreTrainedModel, expected: PreTrainedModel) -> None:
    """All parameters and buffers, to the bit and in number format."""
    for named in (_parameters, _buffers):
        ours, theirs = named(found), named(expected)
        assert ours.keys() == theirs.keys()
        for name, tensor in theirs.items():
            assert (ours[name].dtype, ours[name].device) == (tensor.dtype, tensor.device), name
            assert torch.equal(ours[name].detach().view(torch.uint8), tensor.detach().view(torch.uint8)), name
            assert ours[name].requires_grad == tensor.requires_grad, name


def _parameters(model: PreTrainedModel) -> dict[str, Tensor]:
    return dict(model.named_parameters(remove_duplicate=False))


def _buffers(model: PreTrainedModel) -> dict[str, Tensor]:
    return dict(model.named_buffers())


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.usefixtures("small_pieces")
def test_a_streamed_model_is_the_loaded_one(model_dir: Path, dtype: str) -> None:
    """Stored in float32: loading converts, or not. Embedding and head are one tensor and stay so."""
    model = streamed(model_dir, dtype=dtype)
    assert_equal(model, loaded(model_dir, dtype))
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


@pytest.mark.usefixtures("small_pieces")
def test_in_several_files_untied_with_biases_and_scaled_positions(tmp_path: Path) -> None:
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        attention_bias=True,
        tie_word_embeddings=False,
        rope_parameters={
            "rope_theta": 500000.0,
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 512,
        },
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    model.save_pretrained(tmp_path, max_shard_size="60KB")
    assert len(set(json.loads((tmp_path / INDEX).read_text())["weight_map"].values())) > 2
    assert_equal(streamed(tmp_path), loaded(tmp_path))
    base = loaded(tmp_path)
    adapted = empty_for_training(ModelSettings(path=str(tmp_path)))
    for one in (base, adapted):
        apply_lora(one, targets=LORA.targets, rank=LORA.rank, alpha=LORA.alpha, seed=5)
    fill_for_training(adapted, ModelSettings(path=str(tmp_path)), device=CPU, seed=5)
    assert_equal(adapted, base)


@pytest.mark.parametrize(("kind", "fp8_products"), [("fp8", False), ("nf4", False), ("nf4", True)])
@pytest.mark.usefixtures("small_pieces")
def test_quantised_on_the_way_equals_quantised_afterwards(tmp_path: Path, kind: str, fp8_products: bool) -> None:
    if kind == "nf4":
        pytest.importorskip("bitsandbytes", reason="bitsandbytes is a test dependency: pip install -e '.[test]'")
    config = Qwen3Config(
        vocab_size=300,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    settings = ModelSettings.model_validate({"path": str(tmp_path), "base": kind})
    model, expected = empty_for_training(settings), loaded(tmp_path)
    for one in (model, expected):
        apply_lora(one, targets=LORA.targets, rank=LORA.rank, alpha=LORA.alpha, seed=3)
        quantise_base(one, kind=settings.base, transposed=kind == "fp8", fp8_products=fp8_products)  # type: ignore[arg-type]
    fill_for_training(model, settings, device=CPU, seed=3)
    assert_equal(model, expected)


def test_every_process_keeps_its_rows_of_the_whole(model_dir: Path) -> None:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command = [*launch, "-m", "tests.model.streamed", "equal", str(model_dir)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("base", ["plain", "fp8"])
def test_memory_stays_under_what_is_kept_and_a_layer(tmp_path: Path, base: str) -> None:
    """1.2 x what the process keeps and one layer: 0.7 GB in float32 on disk, kept in bfloat16 or in float8."""
    config = LlamaConfig(
        vocab_size=2048,
        hidden_size=1024,
        intermediate_size=4096,
        num_hidden_layers=10,
        num_attention_heads=8,
        num_key_value_heads=8,
        tie_word_embeddings=False,
    )
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    layer = sum(parameter.nbytes for parameter in model.model.layers[0].parameters())
    stored = sum(parameter.nbytes for parameter in model.parameters())
    model.save_pretrained(tmp_path, max_shard_size="200MB")
    del model
    command = [sys.executable, "-m", "tests.model.streamed", "memory", str(tmp_path), base]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-3000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["kept"] < 0.6 * stored
    assert said["peak"] > 0.9 * said["kept"], "the measurement saw the weights arrive"
    # What readers hold of pieces on their way, and float8's casts of them, is the same for a model of any size; in one
    # this small it is seen, and how much of it at one time hangs on how the threads meet.
    on_the_way = 4 * PIECE_BYTES
    assert said["peak"] < 1.2 * said["kept"] + layer + on_the_way


def test_random_weights_depend_on_seed_and_name_alone() -> None:
    def drawn(layers: int, seed: int) -> dict[str, Tensor]:
        config = LlamaConfig(
            vocab_size=500, hidden_size=64, intermediate_size=96, num_hidden_layers=layers, num_attention_heads=4
        )
        model = empty_model(config, "float32")
        fill_random(model, device=CPU, seed=seed)
        return {name: parameter.detach() for name, parameter in model.named_parameters()}

    one, longer, other = drawn(1, 0), drawn(2, 0), drawn(1, 1)
    assert all(torch.equal(longer[name], tensor) for name, tensor in one.items())
    for name, tensor in one.items():
        if tensor.ndim == 1:
            assert bool((tensor == 1).all()), name
        else:
            assert not torch.equal(other[name], tensor), name
            assert float(tensor.std()) == pytest.approx(0.02, rel=0.05), name
            assert float(tensor.mean()) == pytest.approx(0.0, abs=0.001), name


def _without(name: str) -> Callable[[dict[str, Tensor]], None]:
    def change(tensors: dict[str, Tensor]) -> None:
        del tensors[name]

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_without("model.norm.weight"), r"without model\.norm\.weight, which the model"),
        (lambda t: t.update(extra=torch.zeros(2)), r"holds extra, which the model of its config\.json has not"),
        (
            lambda t: t.update({"model.norm.weight": torch.zeros(3)}),
            r"model\.norm\.weight is \(3,\), config\.json says \(48,\)",
        ),
        (
            lambda t: t.update({"model.norm.weight": torch.zeros(48, dtype=torch.int32)}),
            r"model\.norm\.weight is stored as I32",
        ),
        (
            lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"] + 1}),
            r"model\.embed_tokens\.weight and lm_head\.weight differ, though config\.json ties them",
        ),
    ],
)
def test_other_tensors_than_the_model_has_are_named(
    model_dir: Path, change: Callable[[dict[str, Tensor]], None], said: str
) -> None:
    tensors = load_file(model_dir / SINGLE)
    change(tensors)
    save_file(tensors, model_dir / SINGLE)
    with pytest.raises(IntegrityError, match=said):
        streamed(model_dir)


def test_what_models_compute_and_what_is_tied_may_be_stored_too(model_dir: Path) -> None:
    expected = loaded(model_dir)
    tensors = load_file(model_dir / SINGLE)
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.zeros(6)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors, model_dir / SINGLE)
    assert_equal(streamed(model_dir), expected)
    del tensors["model.embed_tokens.weight"]
    save_file(tensors, model_dir / SINGLE)
    assert_equal(streamed(model_dir), expected)


def test_files_that_are_not_whole_are_named(model_dir: Path) -> None:
    whole = (model_dir / SINGLE).read_bytes()
    (model_dir / SINGLE).write_bytes(whole[:-1])
    with pytest.raises(IntegrityError, match=r"model\.safetensors: 5\d\d,\d\d\d bytes, where its header says"):
        streamed(model_dir)
    (model_dir / SINGLE).write_bytes(b"git-lfs pointer, not a model")
    with pytest.raises(IntegrityError, match=r"model\.safetensors: "):
        streamed(model_dir)
    os.remove(model_dir / SINGLE)  # noqa: PTH107
    with pytest.raises(UsageError, match=r"has neither model\.safetensors nor model\.safetensors\.index\.json"):
        streamed(model_dir)
    write_json(model_dir / INDEX, {"weight_map": {"lm_head.weight": "model-1.safetensors"}})
    with pytest.raises(IntegrityError, match=r"model-1\.safetensors: missing, though"):
        streamed(model_dir)
    save_file({"other": torch.zeros(1)}, model_dir / "model-1.safetensors")
    with pytest.raises(IntegrityError, match=r"model-1\.safetensors: without lm_head\.weight, which"):
        streamed(model_dir)
