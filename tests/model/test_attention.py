"""Packed attention computes what each document alone would."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from seatrial.data.pack import pack_tensors
from seatrial.data.render import Rendered
from seatrial.model.attention import PACKED_ATTENTION
from seatrial.model.packed import PackLoss, pack_input

SHAPE = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
}
FAMILIES = {
    "llama": (LlamaForCausalLM, LlamaConfig),
    "mistral": (MistralForCausalLM, MistralConfig),
    "qwen2": (Qwen2ForCausalLM, Qwen2Config),
    "qwen3": (Qwen3ForCausalLM, Qwen3Config),
}


def model_of(family: str, attention: str) -> PreTrainedModel:
    torch.manual_seed(0)
    model_class, config_class = FAMILIES[family]
    config = config_class(**SHAPE, attn_implementation=attention)
    model: PreTrainedModel = model_class(config)
    return model


def documents(*lengths: int) -> list[Rendered]:
    random = np.random.default_rng(0)
    return [Rendered(random.integers(1, 64, length, dtype=np.int32), random.random(length) < 0.6) for length in lengths]


def loss_and_gradients(model: PreTrainedModel, losses: Sequence[Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    total = torch.stack(list(losses)).sum()
    total.backward()
    return total.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("family", FAMILIES)
def test_packed_equals_unpacked(family: str) -> None:
    """Loss and every gradient, against transformers' own attention on one document at a time."""
    rows = documents(5, 11, 1, 8)
    packed_model = model_of(family, PACKED_ATTENTION)
    packed = loss_and_gradients(packed_model, [pack_loss(packed_model, rows, 40)])
    plain_model = model_of(family, "sdpa")
    plain = loss_and_gradients(plain_model, [plain_loss(plain_model, row) for row in rows])
    assert float(packed[0]) == pytest.approx(float(plain[0]), rel=1e-5)
    assert packed[1].keys() == plain[1].keys()
    for name, gradient in plain[1].items():
        torch.testing.assert_close(packed[1][name], gradient, rtol=1e-4, atol=1e-5, msg=name)


def pack_loss(model: PreTrainedModel, rows: Sequence[Rendered], length: int) -> Tensor:
    loss: Tensor = PackLoss(model)(pack_input(pack_tensors(rows, length, 0), torch.device("cpu")))
    return loss


def plain_loss(model: PreTrainedModel, row: Rendered) -> Tensor:
    ids_BT = torch.tensor(row.ids, dtype=torch.long).unsqueeze(0)
    logits_TV = model(input_ids=ids_BT, use_cache=False).logits[0]
    targets_T = torch.where(torch.tensor(row.trained[1:]), ids_BT[0, 1:], -100)
    loss: Tensor = torch.nn.functional.cross_entropy(logits_TV[:-1], targets_T, reduction="sum", ignore_index=-100)
    return loss


def test_a_document_sees_nothing_of_its_neighbours() -> None:
    """Change one document: the others' loss stays the same to the bit."""
    model = model_of("llama", PACKED_ATTENTION)
    first, second, third = documents(9, 7, 6)
    silent = Rendered(second.ids, np.zeros(7, dtype=np.bool_))
    changed = Rendered((silent.ids + 1) % 64, silent.trained)
    losses = [pack_loss(model, [first, middle, third], 32) for middle in (silent, changed)]
    assert losses[0].item() == losses[1].item()


def test_an_empty_pack_has_no_loss_and_no_gradient() -> None:
    model = model_of("llama", PACKED_ATTENTION)
    loss = pack_loss(model, [], 16)
    loss.backward()
    assert loss.item() == 0.0
    assert all(not p.grad.any() for p in model.parameters() if p.grad is not None)
