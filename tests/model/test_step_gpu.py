"""The step as it runs on a GPU, kernels and all, against the same model in float32."""

from dataclasses import dataclass
from functools import cache

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig

from seatrial.data.pack import IGNORED, Pack
from seatrial.model.attention import PACKED_ATTENTION
from seatrial.model.lora import adapted_layers, apply_lora
from seatrial.model.packed import PackLoss, compile_blocks, pack_input

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
CUDA = torch.device("cuda", 0)
VOCABULARY = 512
# The intermediate width is no multiple of the kernels' chunk of columns, nor the tokens of their rows.
CONFIG = LlamaConfig(
    vocab_size=VOCABULARY,
    hidden_size=512,
    intermediate_size=2688,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=128,
    use_cache=False,
)
TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
# Relative error of a gradient, as ‖ours - float32‖ / ‖float32‖. bfloat16 keeps 8 bits: single products are off by
# some 2^-8, and two blocks deep three times that. float8 e4m3 keeps 4 bits of each factor of every base product.
TOLERANCE = {"dense": 0.03, "fp8": 0.2}


@dataclass(frozen=True)
class Variant:
    base: str = "dense"
    fused: bool = True
    keep: bool = True
    compiled: bool = True


def pack_of(lengths: tuple[int, ...], *, seed: int = 0) -> Pack:
    ids_T = torch.randint(0, VOCABULARY, (sum(lengths),), generator=torch.Generator().manual_seed(seed))
    targets_T = ids_T.roll(-1).clone()
    borders = torch.tensor([0, *lengths]).cumsum(0)
    targets_T[borders[1:] - 1] = IGNORED
    targets_T[: lengths[0] // 2] = IGNORED
    return Pack(
        ids_T=ids_T,
        targets_T=targets_T,
        positions_T=torch.cat([torch.arange(length) for length in lengths]),
        cu_seqlens=borders.to(torch.int32),
        max_seqlen=max(lengths),
        trained_tokens=int((targets_T != IGNORED).sum()),
        tokens=sum(lengths),
    )


def network(dtype: torch.dtype, variant: Variant) -> PackLoss:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(CONFIG, dtype=torch.float32, attn_implementation=PACKED_ATTENTION)
    model.to(torch.bfloat16).to(dtype).to(CUDA)
    apply_lora(model, targets=TARGETS, rank=64, alpha=128.0, seed=0)
    torch.manual_seed(1)
    for _, layer in adapted_layers(model):
        layer.b_OR.data.copy_(0.02 * torch.randn(layer.b_OR.shape))
        if variant.base == "fp8":
            layer.quantise(transposed=True)
    if variant.fused:
        from seatrial.model.mlp import fuse_mlps

        assert fuse_mlps(model, keep=variant.keep) == CONFIG.num_hidden_layers
    model.train()
    if variant.compiled:
        torch.compiler.reset()
        compile_blocks(model)
    packed = PackLoss(model)
    if variant.base == "fp8":
        packed.head.multiply_gradient_in_fp8()
    return packed


def loss_and_gradients(network: PackLoss, pack: Pack) -> tuple[float, dict[str, Tensor]]:
    loss = network(pack_input(pack, CUDA))
    loss.backward()
    return loss.item(), {n: p.grad.float() for n, p in network.named_parameters() if p.grad is not None}


LENGTHS = (1100, 37, 300, 1, 262)


@cache
def reference() -> tuple[float, dict[str, Tensor]]:
    return loss_and_gradients(network(torch.float32, Variant(fused=False, compiled=False)), pack_of(LENGTHS))


@pytest.mark.parametrize(
    "variant",
    [
        Variant(fused=False, compiled=False),
        Variant(fused=False),
        Variant(compiled=False),
        Variant(),
        Variant(keep=False),
        Variant(base="fp8", fused=False, compiled=False),
        Variant(base="fp8", compiled=False),
        Variant(base="fp8"),
        Variant(base="fp8", keep=False),
    ],
    ids=str,
)
def test_loss_and_gradients_are_those_of_float32(variant: Variant) -> None:
    expected_loss, expected = reference()
    loss, gradients = loss_and_gradients(network(torch.bfloat16, variant), pack_of(LENGTHS))
    assert loss == pytest.approx(expected_loss, rel=2e-3)
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        error = float((gradients[name] - gradient).norm() / gradient.norm())
        assert error < TOLERANCE[variant.base], f"{name}: off by {error:.3f}"


@pytest.mark.parametrize("base", TOLERANCE)
@pytest.mark.parametrize("lengths", [(400, 300, 324), (2048, 1024, 1024)], ids=["short", "long"])
def test_a_document_sees_nothing_of_its_neighbours(base: str, lengths: tuple[int, ...]) -> None:
    """Change the middle document: the loss of the others stays the same to the bit."""
    ours = network(torch.bfloat16, Variant(base=base))
    losses = []
    for seed in (0, 1):
        pack, other = pack_of(lengths), pack_of(lengths, seed=seed)
        middle = slice(lengths[0], lengths[0] + lengths[1])
        pack.ids_T[middle] = other.ids_T[middle]
        pack.targets_T[middle] = IGNORED
        with torch.no_grad():
            losses.append(ours(pack_input(pack, CUDA)).item())
    assert losses[0] == losses[1]


def test_packed_equals_unpacked() -> None:
    """The documents of a pack one by one, each a pack of its own, in bfloat16: the losses add up."""
    ours = network(torch.bfloat16, Variant(compiled=False))
    whole = pack_of(LENGTHS)
    alone, start = 0.0, 0
    with torch.no_grad():
        packed = ours(pack_input(whole, CUDA)).item()
        for length in LENGTHS:
            part = pack_of((length,))
            here = slice(start, start + length)
            part.ids_T.copy_(whole.ids_T[here])
            part.targets_T.copy_(whole.targets_T[here])
            alone += ours(pack_input(part, CUDA)).item()
            start += length
    assert packed == pytest.approx(alone, rel=2e-3)
