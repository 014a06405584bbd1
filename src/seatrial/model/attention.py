"""Causal attention inside each document of a pack, reached through transformers' attention interface.

Shapes: B batch (always 1: a pack is one row), H query heads, K key/value heads, T tokens, D head width,
N documents. A pack's documents are given by cumulative lengths, ``cu_seq_lens_q`` of N + 1 integers.

On Hopper, in bfloat16 and with heads 64 or 128 wide, the longest document chooses the kernel: the first one named that
is installed. What decides is the time of forward plus backward, milliseconds for 8,192 tokens with H = 32, K = 8 and
D = 128 on an H100; a mixed pack counts by the power of two above its longest document
(results/attention_h100_2026-11-21.md):

    longest       8,192    4,096    2,048    mixed to 2,048   1,024   mixed to 900   512    256
    flash-attn-4   3.20     1.84     1.15     0.83             0.84    0.78           0.72   0.66
    cuDNN          3.80     2.14     1.31     0.90             0.89    0.83           0.71   0.64
    torch          6.64     3.57     2.04     1.32             1.31    1.07           0.94   0.74

    1,024 and more: flash-attn-4, cuDNN, torch. 256 and more: cuDNN, torch. Fewer, or anything else: torch.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.varlen import varlen_attn
from transformers import AttentionInterface

from seatrial.model import cudnn_attention as cudnn
from seatrial.model import flash_attention as flash

PACKED_ATTENTION = "seatrial_packed"

FLASH_FROM_TOKENS = 1024
CUDNN_FROM_TOKENS = 256
"""Longest document from which a kernel is the fastest one installed: the table above."""

# torch 2.10 spelled causality `is_causal`; later releases spell it as a window and ask for grouped heads by name.
_VARLEN_PARAMETERS = inspect.signature(varlen_attn).parameters
_VARLEN_CAUSAL: dict[str, Any] = {"is_causal": True} if "is_causal" in _VARLEN_PARAMETERS else {"window_size": (-1, 0)}
_VARLEN_GROUPED: dict[str, Any] = {"enable_gqa": True} if "enable_gqa" in _VARLEN_PARAMETERS else {}


def packed_attention(
    module: nn.Module,
    query_BHTD: Tensor,
    key_BKTD: Tensor,
    value_BKTD: Tensor,
    attention_mask: Tensor | None,
    *,
    cu_seq_lens_q: Tensor,
    max_length_q: int,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention of a pack: B = 1, each token sees the tokens before it in its own document only.

    Returns [B, T, H, D] and no attention weights, as the interface asks.
    """
    assert query_BHTD.shape[0] == 1, "a pack is one row"
    assert attention_mask is None, "packed attention builds no mask: documents are given by cu_seq_lens_q"
    # Rotary embedding runs in float32 under autocast; the product below wants one type, that of the projections.
    query_BHTD, key_BKTD = query_BHTD.to(value_BKTD.dtype), key_BKTD.to(value_BKTD.dtype)
    if query_BHTD.is_cuda and query_BHTD.dtype in (torch.bfloat16, torch.float16):
        query_THD, key_TKD, value_TKD = (x[0].transpose(0, 1) for x in (query_BHTD, key_BKTD, value_BKTD))
        attend = _hopper_kernel(query_THD, max_length_q)
        if attend is not None:
            scale = query_THD.shape[2] ** -0.5 if scaling is None else scaling
            attended_THD, _ = attend(query_THD, key_TKD, value_TKD, cu_seq_lens_q, max_length_q, scale)
            return attended_THD.unsqueeze(0), None
        out_THD = varlen_attn(
            query_THD,
            key_TKD,
            value_TKD,
            cu_seq_lens_q,
            cu_seq_lens_q,
            max_length_q,
            max_length_q,
            scale=scaling,
            **_VARLEN_CAUSAL,
            **_VARLEN_GROUPED,
        )
        assert isinstance(out_THD, Tensor)
        return out_THD.unsqueeze(0), None
    return _document_by_document(query_BHTD, key_BKTD, value_BKTD, cu_seq_lens_q, scaling), None


def _hopper_kernel(query_THD: Tensor, longest: int) -> Callable[..., tuple[Tensor, Tensor]] | None:
    """The fastest kernel by the table above, or None where that is torch's."""
    if query_THD.dtype != torch.bfloat16 or query_THD.shape[2] not in (64, 128):
        return None
    device = query_THD.device.index
    if longest >= FLASH_FROM_TOKENS and flash.is_available(device):
        return flash.flash_attention
    if longest >= CUDNN_FROM_TOKENS and cudnn.is_available(device):
        return cudnn.cudnn_attention
    return None


def _document_by_document(
    query_BHTD: Tensor, key_BKTD: Tensor, value_BKTD: Tensor, cu_seq_lens_q: Tensor, scaling: float | None
) -> Tensor:
    """The same without a varlen kernel: short documents one by one cost less than one masked T x T product."""
    lengths_N = cu_seq_lens_q.diff().tolist()
    outs_BHTD = [
        F.scaled_dot_product_attention(query, key, value, is_causal=True, scale=scaling, enable_gqa=True)
        for query, key, value in zip(
            query_BHTD.split(lengths_N, dim=2),
            key_BKTD.split(lengths_N, dim=2),
            value_BKTD.split(lengths_N, dim=2),
            strict=True,
        )
    ]
    return torch.cat(outs_BHTD, dim=2).transpose(1, 2)


AttentionInterface.register(PACKED_ATTENTION, packed_attention)
