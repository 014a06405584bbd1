"""Causal attention inside documents through FlashAttention-4's kernels for Hopper (extra `gpu`: flash-attn-4).

torch's own bridge to them (``torch.nn.attention.activate_flash_attention_impl``) replaces its flash attention for the
whole process, and torch 2.13's expects two results where FlashAttention-4 gives five. The two functions called here are
the ones that bridge calls. They compile on first use, in seconds, once for each width, grouping of heads and
determinism: not for each length.

Shapes: T tokens, H query heads, K key/value heads, D head width.
"""

from functools import cache

import torch
from torch import Tensor


def forward(
    query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, cu_seqlens: Tensor, longest: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention [T, H, D] and what :func:`backward` asks for. ``longest`` may be an upper bound."""
    from flash_attn.cute.interface import _flash_attn_fwd

    out, stats, *_ = _flash_attn_fwd(
        query_THD,
        key_TKD,
        value_TKD,
        cu_seqlens_q=cu_seqlens,
        cu_seqlens_k=cu_seqlens,
        max_seqlen_q=longest,
        max_seqlen_k=longest,
        softmax_scale=scale,
        causal=True,
        return_lse=True,
    )
    return out, stats


def backward(
    grad_THD: Tensor,
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    out_THD: Tensor,
    stats: Tensor,
    cu_seqlens: Tensor,
    longest: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value. Without torch's deterministic mode the last bits differ between calls."""
    from flash_attn.cute.interface import _flash_attn_bwd

    grad_query, grad_key, grad_value = _flash_attn_bwd(
        query_THD,
        key_TKD,
        value_TKD,
        out_THD,
        grad_THD,
        stats.view(query_THD.shape[1], query_THD.shape[0]),
        cu_seqlens_q=cu_seqlens,
        cu_seqlens_k=cu_seqlens,
        max_seqlen_q=longest,
        max_seqlen_k=longest,
        softmax_scale=scale,
        causal=True,
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )
    return grad_query, grad_key, grad_value


@cache
def is_available(device_index: int) -> bool:
    """Whether the package is installed and the GPU is one its kernels were measured on here (Hopper)."""
    try:
        import flash_attn.cute.interface  # noqa: F401
    except ImportError:
        return False
    return torch.cuda.get_device_capability(device_index) == (9, 0)
