"""The gated MLP of a decoder block with its adapters, on a GPU: two opaque products with the activation between them.

Unfused, the low-rank update of gate and up reads and writes the widest tensors of the model once more (8 % of a step
in bfloat16), and the backward pass reads their gradients again to project them onto B. Here both happen inside the
kernels that compute the activation and its derivative, which have those tensors in registers anyway. Row maxima for
fp8 come from the same pass.

Shapes: T tokens, I input width, M intermediate width, R rank, C chunks of columns whose partial sums are added last.
Gate and up lie side by side: [T, 2M], with x A^T of both in [T, 2R] and B of both in [2M, R].
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from seatrial.model.fp8 import FP8
from seatrial.model.fp8_kernels import cast_rows
from seatrial.model.frozen import frozen_product, frozen_product_backward, product_float32

# The fastest of those tried on an H100, at 1.9 times the time that the bytes alone take
# (results/step_h100_2026-11-21.md).
_CHUNK = 2048
_ROWS, _COLUMNS = 64, 64


def supports(rank: int, dtype: torch.dtype) -> bool:
    """The kernels multiply tiles of at least 16 and keep a whole rank in registers."""
    return dtype == torch.bfloat16 and rank in (16, 32, 64, 128)


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
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """down(silu(gate(x)) * up(x)) [T, I], and what the backward needs.

    That is: gate and up without their updates [T, 2M], x A^T of both [T, 2R], the hidden activation [T, M] and its
    product with A of down [T, R]. The two wide ones are empty unless ``keep``: they are then computed again.
    """
    gate_up_T2M = frozen_product(x_TI, x_fp8_TI, x_scales_T1, up_weight, None)
    xa_T2R = x_TI @ a_up_GI.t()
    hidden_TM, largest_T1, ha_TR = _activation(gate_up_T2M, xa_T2R, b_up_OR, a_down_RM)
    hidden_fp8, scales = cast_rows(hidden_TM, largest_T1, None) if down_weight[0].dtype == FP8 else (None, None)
    y_TI = frozen_product(hidden_TM, hidden_fp8, scales, down_weight, None, [(ha_TR, b_down_IR.t())])
    if not keep:
        gate_up_T2M, hidden_TM = gate_up_T2M.new_empty(0), hidden_TM.new_empty(0)
    return y_TI, gate_up_T2M, xa_T2R, hidden_TM, ha_TR


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
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    tokens, width = x_TI.shape[0], a_down_RM.shape[1]
    return (
        x_TI.new_empty(tokens, b_down_IR.shape[0]),
        x_TI.new_empty((tokens, 2 * width) if keep else (0,)),
        x_TI.new_empty(tokens, a_up_GI.shape[0]),
        x_TI.new_empty((tokens, width) if keep else (0,)),
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
    hidden_TM: Tensor,
    ha_TR: Tensor,
    up_weight: Sequence[Tensor],
    a_up_GI: Tensor,
    b_up_OR: Tensor,
    down_weight: Sequence[Tensor],
    a_down_RM: Tensor,
    b_down_IR: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x in its type; of A and B of up, then of A and B of down, in float32."""
    rank, width = a_down_RM.shape
    again = gate_up_T2M.numel() == 0
    if again:
        fp8 = up_weight[0].dtype == FP8
        x_fp8, x_scales = cast_rows(x_TI, x_TI.abs().amax(-1, keepdim=True).float(), None) if fp8 else (None, None)
        gate_up_T2M = frozen_product(x_TI, x_fp8, x_scales, up_weight, None)
    dhidden_TM = frozen_product_backward(grad_TI, grad_fp8_TI, grad_scales_T1, down_weight)
    gb_down_TR = grad_TI @ b_down_IR
    db_down_IR = product_float32(grad_TI.t(), ha_TR)
    scales_O = up_weight[1] if up_weight[0].dtype == FP8 else None
    dgate_up_T2M, largest_T1, gb_up_T2R, hidden_again = _activation_backward(
        gate_up_T2M, xa_T2R, b_up_OR, dhidden_TM, gb_down_TR, a_down_RM, scales_O, again=again
    )
    da_down_RM = product_float32(gb_down_TR.t(), hidden_TM if hidden_again is None else hidden_again)
    db_up = [
        product_float32(d.t(), xa) for d, xa in zip(dgate_up_T2M.split(width, 1), xa_T2R.split(rank, 1), strict=True)
    ]
    dgate_up_fp8, scales = cast_rows(dgate_up_T2M, largest_T1, scales_O) if scales_O is not None else (None, None)
    dx_TI = frozen_product_backward(dgate_up_T2M, dgate_up_fp8, scales, up_weight, [(gb_up_T2R, a_up_GI)])
    return dx_TI, product_float32(gb_up_T2R.t(), x_TI), torch.cat(db_up), da_down_RM, db_down_IR


@fused_mlp_backward.register_fake
def _(
    grad_TI: Tensor,
    grad_fp8_TI: Tensor | None,
    grad_scales_T1: Tensor | None,
    x_TI: Tensor,
    gate_up_T2M: Tensor,
    xa_T2R: Tensor,
    hidden_TM: Tensor,
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


def _activation(
    gate_up_T2M: Tensor, xa_T2R: Tensor, b_up_OR: Tensor, a_down_RM: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """silu(gate) * up [T, M], the largest magnitude of each row [T, 1], and the product with A of down [T, R]."""
    tokens = gate_up_T2M.shape[0]
    rank, width = a_down_RM.shape
    chunks = triton.cdiv(width, _CHUNK)
    hidden_TM = gate_up_T2M.new_empty(tokens, width)
    largest_CT = gate_up_T2M.new_empty(chunks, tokens, dtype=torch.float32)
    ha_CTR = gate_up_T2M.new_empty(chunks, tokens, rank, dtype=torch.float32)
    _activation_kernel[(triton.cdiv(tokens, _ROWS), chunks)](
        gate_up_T2M, xa_T2R, b_up_OR, a_down_RM, hidden_TM, largest_CT, ha_CTR,
        tokens, width, rank, _CHUNK, _ROWS, _COLUMNS, num_warps=4, num_stages=2,
    )  # fmt: skip
    return hidden_TM, *_joined(largest_CT, ha_CTR, hidden_TM.dtype)


def _activation_backward(
    gate_up_T2M: Tensor,
    xa_T2R: Tensor,
    b_up_OR: Tensor,
    dhidden_TM: Tensor,
    gb_down_TR: Tensor,
    a_down_RM: Tensor,
    scales_O: Tensor | None,
    *,
    again: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Gradient of gate and up [T, 2M], its rows' largest after scaling [T, 1], its product with B [T, 2R].

    ``dhidden_TM`` lacks the part that flows through A of down; it is added here. ``again`` returns the hidden
    activation too.
    """
    tokens = gate_up_T2M.shape[0]
    rank, width = a_down_RM.shape
    chunks = triton.cdiv(width, _CHUNK)
    dgate_up_T2M = torch.empty_like(gate_up_T2M)
    hidden_TM = torch.empty_like(dhidden_TM) if again else None
    largest_CT = gate_up_T2M.new_empty(chunks, tokens, dtype=torch.float32)
    gb_CT2R = gate_up_T2M.new_empty(chunks, tokens, 2 * rank, dtype=torch.float32)
    _activation_backward_kernel[(triton.cdiv(tokens, _ROWS), chunks)](
        gate_up_T2M, xa_T2R, b_up_OR, dhidden_TM, gb_down_TR, a_down_RM,
        scales_O if scales_O is not None else largest_CT, dgate_up_T2M,
        hidden_TM if hidden_TM is not None else dgate_up_T2M, largest_CT, gb_CT2R,
        tokens, width, rank, _CHUNK, _ROWS, _COLUMNS, scales_O is not None, again, num_warps=4, num_stages=3,
    )  # fmt: skip
    return dgate_up_T2M, *_joined(largest_CT, gb_CT2R, dgate_up_T2M.dtype), hidden_TM


def _joined(largest_CT: Tensor, products_CTW: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Largest [T, 1] and sum [T, W] over the chunks: one kernel, where the reductions of torch take three."""
    chunks, tokens, width = products_CTW.shape
    largest_T1 = largest_CT.new_empty(tokens, 1)
    sums_TW = products_CTW.new_empty((tokens, width), dtype=dtype)
    _join_kernel[(triton.cdiv(tokens, 16),)](
        largest_CT, products_CTW, largest_T1, sums_TW, tokens, chunks, width, 16, num_warps=4
    )
    return largest_T1, sums_TW


@triton.jit
def _join_kernel(
    largest, products, joined, sums, tokens, CHUNKS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.arange(0, WIDTH)[None, :]
    there = row < tokens
    wide = row.to(tl.int64)[:, None]
    most = tl.zeros((ROWS,), dtype=tl.float32)
    total = tl.zeros((ROWS, WIDTH), dtype=tl.float32)
    for chunk in tl.static_range(CHUNKS):
        most = tl.maximum(most, tl.load(largest + chunk * tokens + row, mask=there, other=0.0))
        total += tl.load(products + (chunk * tokens + wide) * WIDTH + column, mask=there[:, None], other=0.0)
    tl.store(joined + row, most, mask=there)
    tl.store(sums + wide * WIDTH + column, total.to(sums.dtype.element_ty), mask=there[:, None])


@triton.jit
def _activation_kernel(
    gate_up, xa, b_up, a_down, hidden, largest, ha,
    tokens, width, RANK: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    chunk = tl.program_id(1)
    rank = tl.arange(0, RANK)
    there = row < tokens
    wide = row.to(tl.int64)[:, None]
    xa_gate = tl.load(xa + wide * (2 * RANK) + rank[None, :], mask=there[:, None], other=0.0)
    xa_up = tl.load(xa + wide * (2 * RANK) + RANK + rank[None, :], mask=there[:, None], other=0.0)
    most = tl.zeros((ROWS,), dtype=tl.float32)
    partial = tl.zeros((ROWS, RANK), dtype=tl.float32)
    for start in range(0, CHUNK, COLUMNS):
        column = chunk * CHUNK + start + tl.arange(0, COLUMNS)
        inside = column < width
        both = there[:, None] & inside[None, :]
        gate = tl.load(gate_up + wide * (2 * width) + column[None, :], mask=both, other=0.0).to(tl.float32)
        up = tl.load(gate_up + wide * (2 * width) + width + column[None, :], mask=both, other=0.0).to(tl.float32)
        b_gate_t = tl.load(b_up + column[None, :] * RANK + rank[:, None], mask=inside[None, :], other=0.0)
        b_up_t = tl.load(b_up + (width + column[None, :]) * RANK + rank[:, None], mask=inside[None, :], other=0.0)
        gate = tl.dot(xa_gate, b_gate_t, gate)
        up = tl.dot(xa_up, b_up_t, up)
        value = (gate * tl.sigmoid(gate) * up).to(hidden.dtype.element_ty)
        tl.store(hidden + wide * width + column[None, :], value, mask=both)
        most = tl.maximum(most, tl.max(tl.abs(value.to(tl.float32)), axis=1))
        a_t = tl.load(a_down + rank[None, :] * width + column[:, None], mask=inside[:, None], other=0.0)
        partial = tl.dot(value, a_t, partial)
    tl.store(largest + chunk * tokens + row, most, mask=there)
    at = ha + (chunk * tokens + wide) * RANK + rank[None, :]
    tl.store(at, partial, mask=there[:, None])


@triton.jit
def _activation_backward_kernel(
    gate_up, xa, b_up, dhidden, gb_down, a_down, scales, dgate_up, hidden, largest, gb,
    tokens, width, RANK: tl.constexpr, CHUNK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    SCALED: tl.constexpr, AGAIN: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    chunk = tl.program_id(1)
    rank = tl.arange(0, RANK)
    there = row < tokens
    wide = row.to(tl.int64)[:, None]
    xa_gate = tl.load(xa + wide * (2 * RANK) + rank[None, :], mask=there[:, None], other=0.0)
    xa_up = tl.load(xa + wide * (2 * RANK) + RANK + rank[None, :], mask=there[:, None], other=0.0)
    gb_here = tl.load(gb_down + wide * RANK + rank[None, :], mask=there[:, None], other=0.0)
    most = tl.zeros((ROWS,), dtype=tl.float32)
    partial_gate = tl.zeros((ROWS, RANK), dtype=tl.float32)
    partial_up = tl.zeros((ROWS, RANK), dtype=tl.float32)
    kind = dgate_up.dtype.element_ty
    read = gate_up + wide * (2 * width)
    write = dgate_up + wide * (2 * width)
    for start in range(0, CHUNK, COLUMNS):
        column = chunk * CHUNK + start + tl.arange(0, COLUMNS)
        inside = column < width
        both = there[:, None] & inside[None, :]
        gate = tl.load(read + column[None, :], mask=both, other=0.0).to(tl.float32)
        up = tl.load(read + width + column[None, :], mask=both, other=0.0).to(tl.float32)
        grad = tl.load(dhidden + wide * width + column[None, :], mask=both, other=0.0).to(tl.float32)
        b_gate_here = tl.load(b_up + column[:, None] * RANK + rank[None, :], mask=inside[:, None], other=0.0)
        b_up_here = tl.load(b_up + (width + column[:, None]) * RANK + rank[None, :], mask=inside[:, None], other=0.0)
        a_here = tl.load(a_down + rank[:, None] * width + column[None, :], mask=inside[None, :], other=0.0)
        gate += tl.dot(xa_gate, tl.trans(b_gate_here))
        up += tl.dot(xa_up, tl.trans(b_up_here))
        grad += tl.dot(gb_here, a_here)
        sigmoid = tl.sigmoid(gate)
        if AGAIN:
            tl.store(hidden + wide * width + column[None, :], (gate * sigmoid * up).to(kind), mask=both)
        dup = (grad * gate * sigmoid).to(kind)
        dgate = (grad * up * sigmoid * (1.0 + gate * (1.0 - sigmoid))).to(kind)
        tl.store(write + column[None, :], dgate, mask=both)
        tl.store(write + width + column[None, :], dup, mask=both)
        if SCALED:
            gate_scale = tl.load(scales + column, mask=inside, other=0.0)
            up_scale = tl.load(scales + width + column, mask=inside, other=0.0)
            most = tl.maximum(most, tl.max(tl.abs(dgate.to(tl.float32)) * gate_scale[None, :], axis=1))
            most = tl.maximum(most, tl.max(tl.abs(dup.to(tl.float32)) * up_scale[None, :], axis=1))
        partial_gate = tl.dot(dgate, b_gate_here, partial_gate)
        partial_up = tl.dot(dup, b_up_here, partial_up)
    tl.store(largest + chunk * tokens + row, most, mask=there)
    at = gb + (chunk * tokens + wide) * (2 * RANK) + rank[None, :]
    tl.store(at, partial_gate, mask=there[:, None])
    tl.store(at + RANK, partial_up, mask=there[:, None])
