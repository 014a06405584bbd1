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

Under torch's deterministic mode, where all of them repeat to the bit (torch's backward pass was not timed):

    flash-attn-4            2.14     1.36     0.95             0.96    0.87           0.79   0.73
    cuDNN                   2.37     1.35     0.95             0.86    0.72           0.61   0.50

    2,048 and more: flash-attn-4. Fewer: cuDNN, where its workspace is small enough; else as above.

To a compiler this is one operator, whatever kernel runs: the longest document is a number in a tensor on the host and
the count of documents is marked as one that varies, so that packs of all kinds share one piece of compiled code.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface

from seatrial.model import cudnn_attention, flash_attention

PACKED_ATTENTION = "seatrial_packed"

FLASH_FROM_TOKENS = 1024
CUDNN_FROM_TOKENS = 256
"""Longest document from which a kernel is the fastest one installed: the table above."""

FLASH_REPEATABLE_FROM_TOKENS = 2048
"""The same in torch's deterministic mode: cuDNN's plan is then the faster one below."""

MOST_WORKSPACE_BYTES = 2 * 2**30
"""That plan wants a matrix in 16 bits for each document and query head, of the longest document squared: what the
planner (seatrial.dist.plan) leaves for it. Gigabytes where one long document is among short ones."""


@dataclass(frozen=True)
class _Kernel:
    """``forward``: query, key, value, cu_seqlens, longest, scale -> attention [T, H, D] and H * T float32, the
    log-sum-exp of the scores in an order of its own. ``backward``: the gradient, all of these -> three gradients.
    """

    forward: Callable[..., tuple[Tensor, Tensor]]
    backward: Callable[..., tuple[Tensor, Tensor, Tensor]]


def packed_attention(
    module: nn.Module,
    query_BHTD: Tensor,
    key_BKTD: Tensor,
    value_BKTD: Tensor,
    attention_mask: Tensor | None,
    *,
    cu_seq_lens_q: Tensor,
    max_length_q: Tensor,
    scaling: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention of a pack: B = 1, each token sees the tokens before it in its own document only.

    ``max_length_q``, the longest document or an upper bound, is an int64 on the CPU. Returns [B, T, H, D] and no
    attention weights, as the interface asks.
    """
    assert query_BHTD.shape[0] == 1, "a pack is one row"
    assert attention_mask is None, "packed attention builds no mask: documents are given by cu_seq_lens_q"
    # Rotary embedding runs in float32 under autocast; the product below wants one type, that of the projections.
    query_BHTD, key_BKTD = query_BHTD.to(value_BKTD.dtype), key_BKTD.to(value_BKTD.dtype)
    if query_BHTD.device.type == "cpu" or query_BHTD.dtype not in (torch.bfloat16, torch.float16):
        return _document_by_document(query_BHTD, key_BKTD, value_BKTD, cu_seq_lens_q, scaling), None
    query_THD, key_TKD, value_TKD = (x[0].transpose(0, 1) for x in (query_BHTD, key_BKTD, value_BKTD))
    # A view of the joined projections, which would all be kept for the backward pass with it.
    value_TKD = value_TKD.contiguous()
    scale = query_THD.shape[2] ** -0.5 if scaling is None else scaling
    attended_THD, _ = attend(query_THD, key_TKD, value_TKD, cu_seq_lens_q, max_length_q, scale)
    return attended_THD.unsqueeze(0), None


@torch.library.custom_op("seatrial::packed_attention", mutates_args=(), device_types="cuda")
def attend(
    query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, cu_seqlens: Tensor, longest: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """Attention [T, H, D] and the statistics of its kernel."""
    bound = int(longest)
    inputs = query_THD.contiguous(), key_TKD.contiguous(), value_TKD.contiguous()
    out_THD, stats = _kernel(query_THD, cu_seqlens, bound).forward(*inputs, cu_seqlens, bound, scale)
    return out_THD.contiguous(), stats.flatten()


@attend.register_fake
def _(query_THD: Tensor, *_others: object) -> tuple[Tensor, Tensor]:
    tokens, heads, _ = query_THD.shape
    return query_THD.new_empty(query_THD.shape), query_THD.new_empty(heads * tokens, dtype=torch.float32)


@torch.library.custom_op("seatrial::packed_attention_backward", mutates_args=(), device_types="cuda")
def _attend_backward(
    grad_THD: Tensor,
    query_THD: Tensor,
    key_TKD: Tensor,
    value_TKD: Tensor,
    out_THD: Tensor,
    stats: Tensor,
    cu_seqlens: Tensor,
    longest: Tensor,
    scale: float,
) -> tuple[Tensor, Tensor, Tensor]:
    bound = int(longest)
    inputs = (tensor.contiguous() for tensor in (grad_THD, query_THD, key_TKD, value_TKD, out_THD))
    grads = _kernel(query_THD, cu_seqlens, bound).backward(*inputs, stats, cu_seqlens, bound, scale)
    return grads[0].contiguous(), grads[1].contiguous(), grads[2].contiguous()


@_attend_backward.register_fake
def _(grad_THD: Tensor, query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, *_others: object) -> tuple[Tensor, ...]:
    return tuple(tensor.new_empty(tensor.shape) for tensor in (query_THD, key_TKD, value_TKD))


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, cu_seqlens, longest, ctx.scale = inputs
    ctx.save_for_backward(query, key, value, *output, cu_seqlens, longest)


def _backward(ctx: Any, grad_THD: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return *_attend_backward(grad_THD, *ctx.saved_tensors, ctx.scale), None, None, None


attend.register_autograd(_backward, setup_context=_save)


def prepare_attention(
    bounds: Iterable[tuple[int, int]], *, tokens: int, heads: int, key_heads: int, width: int, device: torch.device
) -> None:
    """Attend once, forth and back, for every kind of pack that is to come: some kernels are compiled or planned then.

    Without this, cuDNN lets the first step with a new kind of pack wait for 1 to 2 s.

    Args:
        bounds: documents and longest document of each kind, as :class:`seatrial.model.packed.PackInput` has them.
    """
    if device.type == "cpu":
        return
    for documents, longest in sorted(bounds):
        query_THD, key_TKD, value_TKD = (
            torch.zeros(tokens, count, width, dtype=torch.bfloat16, device=device, requires_grad=True)
            for count in (heads, key_heads, key_heads)
        )
        # Plans depend on the numbers alone, so the documents themselves may as well be empty.
        cu_seqlens = torch.zeros(documents + 1, dtype=torch.int32, device=device)
        cu_seqlens[1:] = longest
        out_THD, _ = attend(query_THD, key_TKD, value_TKD, cu_seqlens, torch.tensor(longest), width**-0.5)
        out_THD.backward(torch.zeros_like(out_THD))


def _kernel(query_THD: Tensor, cu_seqlens: Tensor, longest: int) -> _Kernel:
    """The fastest kernel by the tables above."""
    device = query_THD.device.index
    repeatable = torch.are_deterministic_algorithms_enabled()
    if query_THD.dtype == torch.bfloat16 and query_THD.shape[2] in (64, 128):
        from_tokens = FLASH_REPEATABLE_FROM_TOKENS if repeatable else FLASH_FROM_TOKENS
        if longest >= from_tokens and flash_attention.is_available(device):
            return FLASH
        workspace_bytes = 2 * query_THD.shape[1] * (cu_seqlens.shape[0] - 1) * longest**2 if repeatable else 0
        fits = workspace_bytes <= MOST_WORKSPACE_BYTES
        if longest >= CUDNN_FROM_TOKENS and fits and cudnn_attention.is_available(device):
            return CUDNN
        if longest >= FLASH_FROM_TOKENS and flash_attention.is_available(device):
            return FLASH
    return TORCH


def _torch_forward(
    query_THD: Tensor, key_TKD: Tensor, value_TKD: Tensor, cu_seqlens: Tensor, longest: int, scale: float
) -> tuple[Tensor, Tensor]:
    # What torch.nn.attention.varlen runs, which gives back no statistics that a backward pass of ours could take.
    out_THD, stats, *_ = torch.ops.aten._flash_attention_forward(
        query_THD, key_TKD, value_TKD, cu_seqlens, cu_seqlens, longest, longest, 0.0, True, False, scale=scale
    )
    return out_THD, stats


def _torch_backward(
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
    tokens, heads, _ = query_THD.shape
    no_dropout = torch.zeros(2, dtype=torch.uint64, device=query_THD.device)
    grads: tuple[Tensor, Tensor, Tensor] = torch.ops.aten._flash_attention_backward(
        grad_THD,
        query_THD,
        key_TKD,
        value_TKD,
        out_THD,
        stats.view(heads, tokens),
        cu_seqlens,
        cu_seqlens,
        longest,
        longest,
        0.0,
        True,
        no_dropout,
        no_dropout,
        scale=scale,
    )
    return grads


FLASH = _Kernel(flash_attention.forward, flash_attention.backward)
CUDNN = _Kernel(cudnn_attention.forward, cudnn_attention.backward)
TORCH = _Kernel(_torch_forward, _torch_backward)


@torch.compiler.disable  # type: ignore[untyped-decorator]  # else it is compiled for each list of lengths
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
