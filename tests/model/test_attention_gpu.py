"""On a GPU every kernel computes what each document alone would."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from seatrial.model import cudnn_attention, flash_attention
from seatrial.model.attention import packed_attention

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
# Query heads, key/value heads, and documents from one token to several tiles of the kernels. The last two hold
# nothing: packs are filled up with such documents to a power of two.
H, K = 8, 2
LENGTHS = [1, 7, 130, 300, 74, 512, 0, 0]
# bfloat16 keeps 8 bits: a kernel may round its inputs' products and its result by about 2**-8 of values near 1.
TOLERANCE = 2e-2
# The extra that brings each kernel: the name of its module, and whether this machine can run it.
OPERATORS: dict[str, tuple[Callable[..., tuple[Tensor, Tensor]], Callable[[int], bool]]] = {
    "cudnn": (cudnn_attention.cudnn_attention, cudnn_attention.is_available),
    "flash-attn-4": (flash_attention.flash_attention, flash_attention.is_available),
}


def inputs(width: int) -> tuple[list[Tensor], Tensor, Tensor]:
    """Query, key and value [B, heads, T, D], what their gradients see [B, T, H, D], and the documents' borders."""
    generator = torch.Generator().manual_seed(0)
    tokens = sum(LENGTHS)
    rounded = [torch.randn(1, heads, tokens, width, generator=generator).bfloat16() for heads in (H, K, K)]
    seen = torch.randn(1, tokens, H, width, generator=generator).bfloat16()
    return rounded, seen, torch.tensor([0, *LENGTHS]).cumsum(0).to(torch.int32)


def packed(query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor) -> Tensor:
    out, _ = packed_attention(
        nn.Identity(), query, key, value, None, cu_seq_lens_q=cu_seqlens, max_length_q=max(LENGTHS)
    )
    return out


def operator(name: str) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    attend, is_available = OPERATORS[name]
    if not is_available(0):
        pytest.skip(f"needs {name} and a Hopper GPU")

    def attended(query: Tensor, key: Tensor, value: Tensor, cu_seqlens: Tensor) -> Tensor:
        query, key, value = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
        return attend(query, key, value, cu_seqlens, max(LENGTHS), query.shape[-1] ** -0.5)[0].unsqueeze(0)

    return attended


def with_gradients(
    attend: Callable[[Tensor, Tensor, Tensor, Tensor], Tensor], tensors: list[Tensor], seen: Tensor, cu_seqlens: Tensor
) -> list[Tensor]:
    """Attention and its gradients with respect to query, key and value, on the CPU in float32."""
    query, key, value = (tensor.detach().requires_grad_() for tensor in tensors)
    out = attend(query, key, value, cu_seqlens.to(seen.device))
    out.backward(seen.view_as(out))
    gradients = [tensor.grad for tensor in (query, key, value) if tensor.grad is not None]
    return [tensor.detach().float().cpu() for tensor in (out, *gradients)]


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("name", ["chosen", *OPERATORS])
def test_a_kernel_agrees_with_documents_one_by_one(name: str, width: int) -> None:
    rounded, seen, cu_seqlens = inputs(width)
    attend = packed if name == "chosen" else operator(name)
    kernel = with_gradients(attend, [tensor.cuda() for tensor in rounded], seen.cuda(), cu_seqlens)
    alone = with_gradients(packed, [tensor.float() for tensor in rounded], seen.float(), cu_seqlens)
    assert len(kernel) == len(alone) == 4
    for ours, wanted in zip(kernel, alone, strict=True):
        torch.testing.assert_close(ours, wanted, atol=TOLERANCE * float(wanted.abs().max()), rtol=0.0)


@pytest.mark.parametrize("name", OPERATORS)
def test_deterministic_mode_repeats_every_bit(name: str) -> None:
    rounded, seen, cu_seqlens = inputs(128)
    attend, tensors = operator(name), [tensor.cuda() for tensor in rounded]
    torch.use_deterministic_algorithms(True)
    try:
        first, *others = (with_gradients(attend, tensors, seen.cuda(), cu_seqlens) for _ in range(4))
    finally:
        torch.use_deterministic_algorithms(False)
    for other in others:
        assert all(torch.equal(ours, wanted) for ours, wanted in zip(other, first, strict=True))
