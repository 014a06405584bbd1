"""The trained module: what is computed again changes nothing, and a model of another build is refused."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.autograd.graph import saved_tensors_hooks
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, PreTrainedModel

from seatrial.data.pack import Pack
from seatrial.errors import UsageError
from seatrial.model.attention import PACKED_ATTENTION
from seatrial.model.lora import apply_lora
from seatrial.model.packed import Checkpointing, PackLoss, checkpoint_activations, compile_blocks, pack_input
from tests.small import write_model

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


# Packs of 2,048 tokens that differ in what attention is told of them: how many documents, and the longest.
PACKS = [
    (2048,),
    (1024, 1024),
    (300,) * 6 + (248,),
    (50,) * 40 + (48,),
    (1500, 500, 48),
    (512,) * 4,
    (100,) * 20 + (48,),
]


def pack_of(*lengths: int) -> Pack:
    ids_T = torch.arange(sum(lengths)) % 50
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)
    positions_T = torch.cat([torch.arange(length) for length in lengths])
    return Pack(ids_T, ids_T.roll(-1), positions_T, cu_seqlens, max(lengths), sum(lengths), sum(lengths))


@pytest.fixture
def adapted(tmp_path: Path) -> PreTrainedModel:
    """Float32, with updates that are not zero."""
    model = AutoModelForCausalLM.from_pretrained(
        write_model(tmp_path / "model"), dtype=torch.float32, attn_implementation=PACKED_ATTENTION
    )
    assert isinstance(model, PreTrainedModel)
    apply_lora(model, targets=TARGETS, rank=4, alpha=8, seed=0)
    model.enable_input_require_grads()
    torch.manual_seed(1)
    for name, parameter in model.named_parameters():
        if name.endswith("b_OR"):
            nn.init.normal_(parameter, std=0.1)
    model.train()
    return model


def loss_and_gradients(model: PreTrainedModel) -> tuple[Tensor, list[Tensor], int]:
    """Also how many numbers the backward pass was left with, beside parameters."""
    kept: dict[int, int] = {}
    parameters = {parameter.data_ptr() for parameter in model.parameters()}

    def keep(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in parameters:
            kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    model.zero_grad()
    with saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = PackLoss(model)(pack_input(pack_of(40, 24), torch.device("cpu")))
    loss.backward()
    return loss.detach(), [p.grad for p in model.parameters() if p.grad is not None], sum(kept.values())


def equal(found: tuple[Tensor, Sequence[Tensor], int], expected: tuple[Tensor, Sequence[Tensor], int]) -> None:
    torch.testing.assert_close(found[0], expected[0], rtol=1e-6, atol=1e-6)
    assert len(found[1]) == len(expected[1]) > 0
    for gradient, wanted in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(gradient, wanted, rtol=1e-5, atol=1e-6 * float(wanted.abs().max()) + 1e-9)


def test_activations_computed_again_change_no_gradient_and_take_less(adapted: PreTrainedModel) -> None:
    forwards = {name: module.forward for name, module in adapted.named_modules()}
    measured = {}
    kinds: tuple[Checkpointing, ...] = ("none", "selective", "full")
    for kind in kinds:
        checkpoint_activations(adapted, kind)
        measured[kind] = loss_and_gradients(adapted)
        for name, module in adapted.named_modules():
            object.__setattr__(module, "forward", forwards[name])
        equal(measured[kind], measured["none"])
    assert measured["selective"][2] < 0.7 * measured["none"][2]
    assert measured["full"][2] < 0.5 * measured["selective"][2]


@pytest.mark.parametrize("kind", ["selective", "full"])
def test_compiled_blocks_compute_the_same(adapted: PreTrainedModel, kind: Checkpointing) -> None:
    expected = loss_and_gradients(adapted)
    torch._dynamo.reset()
    compile_blocks(adapted)
    checkpoint_activations(adapted, kind)
    equal(loss_and_gradients(adapted), expected)
    equal(loss_and_gradients(adapted), expected)


@pytest.mark.parametrize("kind", ["none", "selective", "full"])
def test_packs_of_all_kinds_share_one_piece_of_code(kind: Checkpointing, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU, but nothing is computed: tensors without data."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _device: False)  # it knows no such device
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="aot_eager"))
    config = LlamaConfig(
        vocab_size=64, hidden_size=128, intermediate_size=256, num_hidden_layers=3, num_attention_heads=2, head_dim=64
    )
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation=PACKED_ATTENTION, dtype=torch.bfloat16)
    apply_lora(model, targets=TARGETS, rank=4, alpha=8, seed=0)
    model.enable_input_require_grads()
    packed = PackLoss(model)
    monkeypatch.setattr(packed.head, "forward", lambda hidden_SE, _targets_S: hidden_SE.float().sum())
    torch._dynamo.reset()
    counters.clear()
    compile_blocks(model)
    checkpoint_activations(model, kind)
    graphs = []
    for lengths in PACKS:
        packed(pack_input(pack_of(*lengths), torch.device("meta"))).backward()
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs[0] > 0
    assert graphs == graphs[:1] * len(PACKS)


def test_random_numbers_are_the_same_when_computed_again(adapted: PreTrainedModel) -> None:
    torch.manual_seed(3)
    for module in adapted.modules():
        if hasattr(module, "act_fn"):
            module.act_fn = nn.Sequential(nn.SiLU(), nn.Dropout(0.5))
    torch.manual_seed(4)
    expected = loss_and_gradients(adapted)
    checkpoint_activations(adapted, "full")
    torch.manual_seed(4)
    equal(loss_and_gradients(adapted), expected)


def test_another_build_is_refused_with_what_was_looked_for() -> None:
    gpt2 = GPT2LMHeadModel(GPT2Config(n_layer=1, n_embd=8, n_head=1, vocab_size=32))
    with pytest.raises(UsageError, match=r"list of decoder blocks called 'layers'.*GPT2Model, which has wte, wpe"):
        PackLoss(gpt2)


def test_a_head_with_a_bias_is_refused(adapted: PreTrainedModel) -> None:
    adapted.set_output_embeddings(nn.Linear(48, 2048))
    with pytest.raises(UsageError, match="a head that is a linear layer without bias"):
        PackLoss(adapted)


def test_selective_needs_an_mlp(adapted: PreTrainedModel) -> None:
    for block in adapted.get_decoder().layers:
        block.feed_forward = block.mlp
        del block.mlp
    with pytest.raises(UsageError, match=r"selective looked for 'mlp' in LlamaDecoderLayer.*choose none or full"):
        checkpoint_activations(adapted, "selective")
