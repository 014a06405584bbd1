"""On a GPU every kernel computes what each document alone would, and none is waited for in the middle of a training."""

from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from seatrial.model import attention, cudnn_attention, flash_attention
from seatrial.model.attention import PACKED_ATTENTION, packed_attention, prepare_attention
from seatrial.model.packed import PackLoss, attention_bounds, compile_blocks, pack_input
from tests.model.test_packed import PACKS, pack_of

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
# Query heads, key/value heads, and documents from one token to several tiles of the kernels. The last two hold
# nothing: packs are filled up with such documents to a power of two.
H, K = 8, 2
LENGTHS = (1, 7, 130, 300, 74, 512, 0, 0)
# bfloat16 keeps 8 bits: a kernel may round its inputs' products and its result by about 2**-8 of values near 1.
TOLERANCE = 2e-2
NEVER = 1 << 30
# From how many tokens on FlashAttention-4 and cuDNN are chosen.
THRESHOLDS = {"torch": (NEVER, NEVER), "cudnn": (NEVER, attention.CUDNN_FROM_TOKENS), "flash-attn-4": (0, NEVER)}
INSTALLED = {"cudnn": cudnn_attention.is_available, "flash-attn-4": flash_attention.is_available}

Attend = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def inputs(width: int) -> tuple[list[Tensor], Tensor, Tensor]:
    """Query, key and value [B, heads, T, D], what their gradients see [B, T, H, D], and the documents' borders."""
    generator = torch.Generator().manual_seed(0)
    tokens = sum(LENGTHS)
    rounded = [torch.randn(1, heads, tokens, width, generator=generator).bfloat16() for heads in (H, K, K)]
    seen = torch.randn(1, tokens, H, width, generator=generator).bfloat16()
    return rounded, seen, torch.tensor([0, *LENGTHS]).cumsum(0).to(torch.int32)


def packed(query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor) -> Tensor:
    out, _ = packed_attention(
        nn.Identity(), query, key, value, None, cu_seq_lens_q=cu_seqlens, max_length_q=torch.tensor(max(LENGTHS))
    )
    return out


def choose(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let ``packed_attention`` take this kernel, whatever the length."""
    if kernel in INSTALLED and not INSTALLED[kernel](0):
        pytest.skip(f"needs {kernel} and a Hopper GPU")
    for name, threshold in zip(("FLASH_FROM_TOKENS", "CUDNN_FROM_TOKENS"), THRESHOLDS[kernel], strict=True):
        monkeypatch.setattr(attention, name, threshold)


def with_gradients(attend: Attend, tensors: list[Tensor], seen: Tensor, cu_seqlens: Tensor) -> list[Tensor]:
    """Attention and its gradients with respect to query, key and value, on the CPU in float32."""
    query, key, value = (tensor.detach().requires_grad_() for tensor in tensors)
    out = attend(query, key, value, cu_seqlens.to(seen.device))
    out.backward(seen.view_as(out))
    gradients = [tensor.grad for tensor in (query, key, value) if tensor.grad is not None]
    return [tensor.detach().float().cpu() for tensor in (out, *gradients)]


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("kernel", ["chosen", *THRESHOLDS])
def test_a_kernel_agrees_with_documents_one_by_one(kernel: str, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if kernel != "chosen":
        choose(kernel, monkeypatch)
    rounded, seen, cu_seqlens = inputs(width)
    ours = with_gradients(packed, [tensor.cuda() for tensor in rounded], seen.cuda(), cu_seqlens)
    alone = with_gradients(packed, [tensor.float() for tensor in rounded], seen.float(), cu_seqlens)
    assert len(ours) == len(alone) == 4
    for found, wanted in zip(ours, alone, strict=True):
        torch.testing.assert_close(found, wanted, atol=TOLERANCE * float(wanted.abs().max()), rtol=0.0)


@pytest.mark.parametrize("kernel", INSTALLED)
def test_deterministic_mode_repeats_every_bit(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(kernel, monkeypatch)
    rounded, seen, cu_seqlens = inputs(128)
    tensors = [tensor.cuda() for tensor in rounded]
    torch.use_deterministic_algorithms(True)
    try:
        first, *others = (with_gradients(packed, tensors, seen.cuda(), cu_seqlens) for _ in range(4))
    finally:
        torch.use_deterministic_algorithms(False)
    for other in others:
        assert all(torch.equal(ours, wanted) for ours, wanted in zip(other, first, strict=True))


def bounds_of(lengths: Sequence[int]) -> tuple[int, int]:
    return attention_bounds(len(lengths), max(lengths), sum(lengths))


@pytest.mark.parametrize("kernel", THRESHOLDS)
def test_after_the_first_pack_nothing_is_planned_or_compiled(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(kernel, monkeypatch)
    model = small_llama()
    tokens, cuda = sum(PACKS[0]), torch.device("cuda")
    prepare_attention(map(bounds_of, PACKS), tokens=tokens, heads=2, key_heads=1, width=64, device=cuda)
    caches = cudnn_attention._forward_plan, cudnn_attention._backward_plan
    plans = [cache.cache_info().misses for cache in caches]
    torch._dynamo.reset()
    counters.clear()
    compile_blocks(model)
    compiled = []
    for lengths in PACKS:
        PackLoss(model)(pack_input(pack_of(*lengths), cuda)).backward()
        compiled.append(counters["stats"]["unique_graphs"])
    assert compiled[0] > 0
    assert compiled == compiled[:1] * len(PACKS)
    assert [cache.cache_info().misses for cache in caches] == plans


@pytest.mark.parametrize("kernel", THRESHOLDS)
def test_compiled_blocks_compute_the_same(kernel: str, monkeypatch: pytest.MonkeyPatch) -> None:
    choose(kernel, monkeypatch)
    model, lengths = small_llama(), PACKS[1]
    pack = pack_input(pack_of(*lengths), torch.device("cuda"))
    plain = PackLoss(model)(pack).item()
    torch._dynamo.reset()
    compile_blocks(model)
    assert PackLoss(model)(pack).item() == pytest.approx(plain, rel=1e-3)


def small_llama() -> PreTrainedModel:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=64,
    )
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(config, attn_implementation=PACKED_ATTENTION, dtype=torch.bfloat16)
    assert isinstance(model, PreTrainedModel)
    return model
