"""On a GPU the varlen kernel computes what each document alone would."""

import pytest
import torch
from torch import Tensor, nn

from seatrial.model.attention import packed_attention

# Query heads, key/value heads, head width, and documents from one token to several tiles of the kernel.
H, K, D = 8, 2, 64
LENGTHS = [1, 7, 130, 300, 74]
# bfloat16 keeps 8 bits: the kernel may round its inputs' products and its result by about 2**-8 of values near 1.
TOLERANCE = 2e-2


def attend(tensors: list[Tensor], seen: Tensor) -> list[Tensor]:
    """Packed attention and its gradients with respect to query, key and value, on the CPU in float32."""
    query, key, value = (tensor.detach().requires_grad_() for tensor in tensors)
    cu_seqlens = torch.tensor([0, *LENGTHS]).cumsum(0).to(seen.device, torch.int32)
    out, _ = packed_attention(
        nn.Identity(), query, key, value, None, cu_seq_lens_q=cu_seqlens, max_length_q=max(LENGTHS)
    )
    out.backward(seen.view_as(out))
    gradients = [tensor.grad for tensor in (query, key, value) if tensor.grad is not None]
    return [tensor.detach().float().cpu() for tensor in (out, *gradients)]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
def test_the_kernel_agrees_with_documents_one_by_one() -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = sum(LENGTHS)
    rounded = [torch.randn(1, heads, tokens, D, generator=generator).bfloat16() for heads in (H, K, K)]
    seen = torch.randn(1, tokens, H, D, generator=generator).bfloat16()
    kernel = attend([tensor.cuda() for tensor in rounded], seen.cuda())
    alone = attend([tensor.float() for tensor in rounded], seen.float())
    assert len(kernel) == len(alone) == 4
    for ours, wanted in zip(kernel, alone, strict=True):
        torch.testing.assert_close(ours, wanted, atol=TOLERANCE * float(wanted.abs().max()), rtol=0.0)
