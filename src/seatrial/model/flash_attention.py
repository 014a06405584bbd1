"""Causal attention inside documents through FlashAttention-4's kernels for Hopper (extra `gpu`: flash-attn-4).

torch's own bridge to them (``torch.nn.attention.activate_flash_attention_impl``) replaces its flash attention for the
whole process, and torch 2.13's expects two results where FlashAttention-4 gives five. The two functions called here are
the ones that bridge calls. They compile on first use, in seconds, once for each width, grouping of heads and
determinism: not for each length.

Shapes: T tokens, H query heads, K key/value heads, D head width.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor


@torch.library.custom_op("seatrial::flash_attention", mutates_args=(), device_types="cuda")
def flash_attention(
    query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, cu_seqlens: Tensor, longest: int, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention [T, H, D] and the log-sum-exp of its scores [H, T] (float32). ``longest`` may be an upper bound."""
    from flash_attn.cute.interface import _flash_attn_fwd

    out, stats, *_ = _flash_attn_fwd(
        query_THD.contiguous(),
        key_TKD.contiguous(),
        value_TKD.contiguous(),
        cu_seqlens_q=cu_seqlens,
        cu_seqlens_k=cu_seqlens,
        max_seqlen_q=longest,
        max_seqlen_k=longest,
        softmax_scale=scale,
        causal=True,
        return_lse=True,
    )
    return out, stats


@flash_attention.register_fake
def _(
    query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, cu_seqlens: Tensor, longest: int, scale: float
) -> tuple[Tensor, Tensor]:
    tokens, heads, _ = query_THD.shape
    return query_THD.new_empty(query_THD.shape), query_THD.new_empty((heads, tokens), dtype=torch.float32)


@torch.library.custom_op("seatrial::flash_attention_backward", mutates_args=(), device_types="cuda")
def flash_attention_backward(
    grad_THD: Tensor,
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    out_THD: Tensor,
    stats_HT: Tensor,
    cu_seqlens: Tensor,
    longest: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of query, key and value. Without torch's deterministic mode the last bits differ between calls."""
    from flash_attn.cute.interface import _flash_attn_bwd

    grad_query, grad_key, grad_value = _flash_attn_bwd(
        query_THD.contiguous(),
        key_TKD.contiguous(),
        value_TKD.contiguous(),
        out_THD.contiguous(),
        grad_THD.contiguous(),
        stats_HT.contiguous(),
        cu_seqlens_q=cu_seqlens,
        cu_seqlens_k=cu_seqlens,
        max_seqlen_q=longest,
        max_seqlen_k=longest,
        softmax_scale=scale,
        causal=True,
        deterministic=torch.are_deterministic_algorithms_enabled(),
    )
    return grad_query, grad_key, grad_value


@flash_attention_backward.register_fake
def _(
    grad_THD: Tensor,
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    out_THD: Tensor,
    stats_HT: Tensor,
    cu_seqlens: Tensor,
    longest: int,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    return tuple(tensor.new_empty(tensor.shape) for tensor in (query_THD, key_TKD, value_TKD))  # type: ignore[return-value]


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, cu_seqlens, ctx.longest, ctx.scale = inputs
    ctx.save_for_backward(query, key, value, *output, cu_seqlens)


def _backward(ctx: Any, grad_THD: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    query, key, value, out, stats, cu_seqlens = ctx.saved_tensors
    grads = flash_attention_backward(grad_THD, query, key, value, out, stats, cu_seqlens, ctx.longest, ctx.scale)
    return *grads, None, None, None


flash_attention.register_autograd(_backward, setup_context=_save)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # an import is nothing to trace
def is_available(device_index: int) -> bool:
    """Whether the package is installed and the GPU is one its kernels were measured on here (Hopper)."""
    return torch.cuda.get_device_capability(device_index) == (9, 0) and _is_installed()


@cache
def _is_installed() -> bool:
    try:
        import flash_attn.cute.interface  # noqa: F401
    except ImportError:
        return False
    return True
