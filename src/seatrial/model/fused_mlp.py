"""The gated MLP of a decoder block with its adapters, on a GPU: two opaque products with the activation between them.

Its tensors are the widest of the model, and what is done to them between the products is bound by memory: each kernel
here does all that can be done from one reading. Forward: the activation, and its rows cast to float8. Backward: the
activation's derivative and, a program keeping its columns and going over the rows, the gradients of B of gate and up
and of A of down; then the cast, and the product with B.

Shapes: T tokens, I input width, M intermediate width, R rank, C chunks of columns, S chunks of rows.
Gate and up lie side by side: [T, 2M], with x A^T of both in [T, 2R] and B of both in [2M, R].
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from seatrial.model.fp8 import FP8, FP8_MAX, SMALLEST
from seatrial.model.fp8_kernels import cast_and_multiply
from seatrial.model.frozen import factor, frozen_product, frozen_product_backward, product_float32, row_scales

# The fastest of those tried on an H100 (results/step_h100_2026-11-21.md).
_ROWS, _COLUMNS = 32, 64
_CHUNK = 1024
"""Rows that a program goes over. More would leave multiprocessors idle, fewer leave more sums to add."""


@torch.library.custom_op("seatrial::fused_mlp", mutates_args=(), device_types="cuda")
def fused_mlp(
    x_TI: Tensor,
    x_fp8_TI: Tensor | None,
    x_scales_T1: Tensor | None,
    up_weight: Sequence[Tensor],
    a_up_GI: Tensor,
    b_up_OR: Tensor,
    down_weight: Sequence[Tensor],
    a_down_RM: Tensor,
    b_down_IR: Tensor,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """down(silu(gate(x)) * up(x)) [T, I], and what the backward needs.

    That is: gate and up with their updates [T, 2M], x A^T of both [T, 2R], and the hidden activation times A of down
    [T, R]. The wide one is empty unless ``keep``: it is then computed again.
    """
    xa_T2R = x_TI @ a_up_GI.t()
    gate_up_T2M = _gate_up(x_TI, x_fp8_TI, x_scales_T1, up_weight, xa_T2R, b_up_OR)
    hidden_TM, hidden_fp8, scales_T1 = _activation(gate_up_T2M, cast=row_scales(down_weight) is not None)
    ha_TR = hidden_TM @ a_down_RM.t()
    y_TI = frozen_product(hidden_TM, hidden_fp8, scales_T1, down_weight, None, [(ha_TR, b_down_IR.t())])
    return y_TI, gate_up_T2M if keep else gate_up_T2M.new_empty(0), xa_T2R, ha_TR


@fused_mlp.register_fake
def _(
    x_TI: Tensor,
    x_fp8_TI: Tensor | None,
    x_scales_T1: Tensor | None,
    up_weight: Sequence[Tensor],
    a_up_GI: Tensor,
    b_up_OR: Tensor,
    down_weight: Sequence[Tensor],
    a_down_RM: Tensor,
    b_down_IR: Tensor,
    keep: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    tokens, width = x_TI.shape[0], a_down_RM.shape[1]
    return (
        x_TI.new_empty(tokens, b_down_IR.shape[0]),
        x_TI.new_empty((tokens, 2 * width) if keep else (0,)),
        x_TI.new_empty(tokens, a_up_GI.shape[0]),
        x_TI.new_empty(tokens, a_down_RM.shape[0]),
    )


@torch.library.custom_op("seatrial::fused_mlp_backward", mutates_args=(), device_types="cuda")
def fused_mlp_backward(
    grad_TI: Tensor,
    grad_fp8_TI: Tensor | None,
    grad_scales_T1: Tensor | None,
    x_TI: Tensor,
    gate_up_T2M: Tensor,
    xa_T2R: Tensor,
    ha_TR: Tensor,
    up_weight: Sequence[Tensor],
    a_up_GI: Tensor,
    b_up_OR: Tensor,
    down_weight: Sequence[Tensor],
    a_down_RM: Tensor,
    b_down_IR: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x in its type; of A and B of up, then of A and B of down, in float32."""
    scales_O = row_scales(up_weight)
    if gate_up_T2M.numel() == 0:
        x_fp8_TI, x_scales_T1 = factor(x_TI, up_weight)
        gate_up_T2M = _gate_up(x_TI, x_fp8_TI, x_scales_T1, up_weight, xa_T2R, b_up_OR)
    gb_down_TR = grad_TI @ b_down_IR
    db_down_IR = product_float32(grad_TI.t(), ha_TR)
    dhidden_TM = frozen_product_backward(grad_TI, grad_fp8_TI, grad_scales_T1, down_weight, [(gb_down_TR, a_down_RM)])
    dgate_up_T2M, largest_CT, products_3MR = _activation_backward(gate_up_T2M, dhidden_TM, xa_T2R, gb_down_TR, scales_O)
    db_gate_MR, db_up_MR, da_down_MR = products_3MR
    halves_T2M = dgate_up_T2M.unflatten(1, (2, -1))
    b_2MR = b_up_OR.unflatten(0, (2, -1))
    if scales_O is not None:
        dgate_up_fp8, scales_T1, gb_up_T2R = cast_and_multiply(halves_T2M, largest_CT.amax(0), scales_O, b_2MR)
    else:
        dgate_up_fp8, scales_T1 = None, None
        gb_up_T2R = torch.cat([half_TM @ b_MR for half_TM, b_MR in zip(halves_T2M.unbind(1), b_2MR, strict=True)], 1)
    dx_TI = frozen_product_backward(dgate_up_T2M, dgate_up_fp8, scales_T1, up_weight, [(gb_up_T2R, a_up_GI)])
    da_up_GI = product_float32(gb_up_T2R.t(), x_TI)
    return dx_TI, da_up_GI, torch.cat([db_gate_MR, db_up_MR]), da_down_MR.t().contiguous(), db_down_IR


@fused_mlp_backward.register_fake
def _(
    grad_TI: Tensor,
    grad_fp8_TI: Tensor | None,
    grad_scales_T1: Tensor | None,
    x_TI: Tensor,
    gate_up_T2M: Tensor,
    xa_T2R: Tensor,
    ha_TR: Tensor,
    up_weight: Sequence[Tensor],
    a_up_GI: Tensor,
    b_up_OR: Tensor,
    down_weight: Sequence[Tensor],
    a_down_RM: Tensor,
    b_down_IR: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    halves = (a_up_GI, b_up_OR, a_down_RM, b_down_IR)
    da_up, db_up, da_down, db_down = (half.new_empty(half.shape, dtype=torch.float32) for half in halves)
    return x_TI.new_empty(x_TI.shape), da_up, db_up, da_down, db_down


def _gate_up(
    x_TI: Tensor,
    x_fp8_TI: Tensor | None,
    x_scales_T1: Tensor | None,
    weight: Sequence[Tensor],
    xa_T2R: Tensor,
    b_OR: Tensor,
) -> Tensor:
    """Gate and up with their updates: [T, 2M]."""
    updates = [(xa_TR, b_MR.t()) for xa_TR, b_MR in zip(xa_T2R.chunk(2, 1), b_OR.chunk(2, 0), strict=True)]
    return frozen_product(x_TI, x_fp8_TI, x_scales_T1, weight, None, updates)


def _activation(gate_up_T2M: Tensor, *, cast: bool) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """silu(gate) * up [T, M]; with ``cast`` in float8 too, with its scales [T, 1]."""
    tokens, width = gate_up_T2M.shape[0], gate_up_T2M.shape[1] // 2
    hidden_TM = gate_up_T2M.new_empty(tokens, width)
    hidden_fp8 = torch.empty_like(hidden_TM, dtype=FP8) if cast else None
    scales_T1 = gate_up_T2M.new_empty((tokens, 1), dtype=torch.float32) if cast else None
    columns = triton.next_power_of_2(width)
    _activation_kernel[(tokens,)](
        gate_up_T2M, hidden_TM, hidden_fp8, scales_T1,
        width, FP8_MAX, SMALLEST, columns, cast, num_warps=max(1, min(32, columns // 512)),
    )  # fmt: skip
    return hidden_TM, hidden_fp8, scales_T1


def _activation_backward(
    gate_up_T2M: Tensor, dhidden_TM: Tensor, xa_T2R: Tensor, gb_down_TR: Tensor, scales_O: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradient of gate and up [T, 2M], its rows' largest after scaling [C, T], and three gradients of adapters.

    They are those of B of gate, B of up and A of down (transposed): [3, M, R] in float32. Where nothing is scaled, the
    largest are not written.
    """
    tokens, width = dhidden_TM.shape
    rank = gb_down_TR.shape[1]
    chunks, sums = triton.cdiv(width, _COLUMNS), triton.cdiv(tokens, _CHUNK)
    dgate_up_T2M = torch.empty_like(gate_up_T2M)
    largest_CT = gate_up_T2M.new_empty(chunks, tokens, dtype=torch.float32)
    products_S3MR = gate_up_T2M.new_empty(sums, 3, width, rank, dtype=torch.float32)
    _activation_backward_kernel[(chunks, sums)](
        gate_up_T2M, dhidden_TM, xa_T2R, gb_down_TR, scales_O, dgate_up_T2M, largest_CT, products_S3MR,
        tokens, width, rank, _CHUNK, _ROWS, _COLUMNS, scales_O is not None,
        num_warps=8 if rank > 64 else 4, num_stages=3,
    )  # fmt: skip
    return dgate_up_T2M, largest_CT, products_S3MR.sum(0)


@triton.jit
def _activation_kernel(
    gate_up, hidden, q, scales,
    width, MOST: tl.constexpr, SMALLEST: tl.constexpr, COLUMNS: tl.constexpr, CAST: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, COLUMNS)
    inside = column < width
    gate = tl.load(gate_up + row * (2 * width) + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * (2 * width) + width + column, mask=inside, other=0.0).to(tl.float32)
    value = (gate * tl.sigmoid(gate) * up).to(hidden.dtype.element_ty)
    tl.store(hidden + row * width + column, value, mask=inside)
    if CAST:
        rounded = value.to(tl.float32)
        largest = tl.maximum(tl.max(tl.abs(rounded), axis=0), SMALLEST)
        tl.store(q + row * width + column, (rounded * (MOST / largest)).to(q.dtype.element_ty), mask=inside)
        tl.store(scales + row, largest / MOST)


@triton.jit
def _activation_backward_kernel(
    gate_up, dhidden, xa, gb, scales, dgate_up, largest, products,
    tokens, width, RANK: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    SCALED: tl.constexpr,
):  # fmt: skip
    chunk = tl.program_id(0)
    column = chunk * COLUMNS + tl.arange(0, COLUMNS)
    inside = column < width
    rank = tl.arange(0, RANK)[None, :]
    kind = dgate_up.dtype.element_ty
    if SCALED:
        gate_scale = tl.load(scales + column, mask=inside, other=0.0)[None, :]
        up_scale = tl.load(scales + width + column, mask=inside, other=0.0)[None, :]
    db_gate = tl.zeros((COLUMNS, RANK), dtype=tl.float32)
    db_up = tl.zeros((COLUMNS, RANK), dtype=tl.float32)
    da_down = tl.zeros((COLUMNS, RANK), dtype=tl.float32)
    first = tl.program_id(1) * CHUNK
    for start in range(first, first + CHUNK, ROWS):
        row = start + tl.arange(0, ROWS)
        there = row < tokens
        both = there[:, None] & inside[None, :]
        wide = row.to(tl.int64)[:, None]
        at = wide * (2 * width) + column[None, :]
        gate = tl.load(gate_up + at, mask=both, other=0.0).to(tl.float32)
        up = tl.load(gate_up + at + width, mask=both, other=0.0).to(tl.float32)
        grad = tl.load(dhidden + wide * width + column[None, :], mask=both, other=0.0).to(tl.float32)
        xa_gate = tl.load(xa + wide * (2 * RANK) + rank, mask=there[:, None], other=0.0)
        xa_up = tl.load(xa + wide * (2 * RANK) + RANK + rank, mask=there[:, None], other=0.0)
        gb_here = tl.load(gb + wide * RANK + rank, mask=there[:, None], other=0.0)
        sigmoid = tl.sigmoid(gate)
        silu = gate * sigmoid
        hidden = (silu * up).to(kind)
        dup = (grad * silu).to(kind)
        dgate = (grad * up * (sigmoid + silu * (1.0 - sigmoid))).to(kind)
        tl.store(dgate_up + at, dgate, mask=both)
        tl.store(dgate_up + at + width, dup, mask=both)
        if SCALED:
            most = tl.maximum(tl.abs(dgate.to(tl.float32)) * gate_scale, tl.abs(dup.to(tl.float32)) * up_scale)
            tl.store(largest + chunk * tokens + row, tl.max(most, axis=1), mask=there)
        db_gate = tl.dot(tl.trans(dgate), xa_gate, db_gate)
        db_up = tl.dot(tl.trans(dup), xa_up, db_up)
        da_down = tl.dot(tl.trans(hidden), gb_here, da_down)
    at = products + (tl.program_id(1).to(tl.int64) * 3 * width + column[:, None]) * RANK + rank
    tl.store(at, db_gate, mask=inside[:, None])
    tl.store(at + width * RANK, db_up, mask=inside[:, None])
    tl.store(at + 2 * width * RANK, da_down, mask=inside[:, None])
