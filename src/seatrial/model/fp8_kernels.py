"""Casting rows to float8 with a scale for each, on a GPU, where the compiler's own code for it takes longer.

Shapes: T rows (tokens), W their width.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

from seatrial.model.fp8 import FP8, FP8_MAX, SMALLEST


def cast_joined_rows(parts: Sequence[Tensor], column_scales_W: Tensor) -> tuple[Tensor, Tensor]:
    """quantise_rows(parts side by side * column scales) of up to three parts, each row read once."""
    tokens, width = parts[0].shape[0], column_scales_W.shape[0]
    first, second, third = [*parts, parts[0], parts[0]][:3]
    ends = [sum(part.shape[1] for part in parts[: count + 1]) for count in range(len(parts))]
    first_end, second_end = (*ends, width)[:2]
    q_TW = parts[0].new_empty((tokens, width), dtype=FP8)
    row_scales_T1 = parts[0].new_empty((tokens, 1), dtype=torch.float32)
    columns = triton.next_power_of_2(width)
    _cast_joined_rows_kernel[(tokens,)](
        first, second, third, column_scales_W, q_TW, row_scales_T1,
        first_end, second_end, width, FP8_MAX, SMALLEST, columns, num_warps=max(1, min(16, columns // 512)),
    )  # fmt: skip
    return q_TW, row_scales_T1


def cast_rows(x_TW: Tensor, largest_T1: Tensor, column_scales_W: Tensor | None) -> tuple[Tensor, Tensor]:
    """As frozen.quantise_rows(x * column scales), where the largest of each row is known already."""
    tokens, width = x_TW.shape
    q_TW = torch.empty_like(x_TW, dtype=FP8)
    largest_T1 = largest_T1.clamp(min=SMALLEST)
    columns = 1024
    _cast_rows_kernel[(triton.cdiv(tokens, 8), triton.cdiv(width, columns))](
        x_TW, largest_T1, column_scales_W if column_scales_W is not None else largest_T1, q_TW,
        tokens, width, FP8_MAX, 8, columns, column_scales_W is not None, num_warps=8,
    )  # fmt: skip
    return q_TW, largest_T1 / FP8_MAX


def transposed(x_RC: Tensor) -> Tensor:
    """A copy of a float8 matrix [R, C] as [C, R], near the bandwidth of the memory."""
    rows, columns = x_RC.shape
    out_CR = x_RC.new_empty(columns, rows)
    tile = 128
    _transpose_kernel[(triton.cdiv(rows, tile), triton.cdiv(columns, tile))](
        x_RC.view(torch.uint8), out_CR.view(torch.uint8), rows, columns, tile, num_warps=8
    )
    return out_CR


@triton.jit
def _transpose_kernel(x, out, rows, columns, TILE: tl.constexpr):
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    column = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = (row < rows)[:, None] & (column < columns)[None, :]
    value = tl.load(x + row.to(tl.int64)[:, None] * columns + column[None, :], mask=inside)
    tl.store(out + column.to(tl.int64)[:, None] * rows + row[None, :], tl.trans(value), mask=tl.trans(inside))


@triton.jit
def _cast_joined_rows_kernel(
    first, second, third, scales, q, row_scales,
    first_end, second_end, width, MOST: tl.constexpr, SMALLEST: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, COLUMNS)
    inside = column < width
    in_first, in_third = column < first_end, (column >= second_end) & inside
    in_second = (column >= first_end) & (column < second_end)
    value = tl.load(first + row * first_end + column, mask=in_first, other=0.0).to(tl.float32)
    at = row * (second_end - first_end) + column - first_end
    value += tl.load(second + at, mask=in_second, other=0.0).to(tl.float32)
    at = row * (width - second_end) + column - second_end
    value += tl.load(third + at, mask=in_third, other=0.0).to(tl.float32)
    value *= tl.load(scales + column, mask=inside, other=0.0)
    largest = tl.maximum(tl.max(tl.abs(value), axis=0), SMALLEST)
    tl.store(q + row * width + column, (value * (MOST / largest)).to(q.dtype.element_ty), mask=inside)
    tl.store(row_scales + row, largest / MOST)


@triton.jit
def _cast_rows_kernel(
    x, largest, scales, q,
    tokens, width, MOST: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
    both = (row < tokens)[:, None] & (column < width)[None, :]
    at = row.to(tl.int64)[:, None] * width + column[None, :]
    value = tl.load(x + at, mask=both, other=0.0).to(tl.float32)
    if SCALED:
        value *= tl.load(scales + column, mask=column < width, other=0.0)[None, :]
    value *= (MOST / tl.load(largest + row, mask=row < tokens, other=1.0))[:, None]
    tl.store(q + at, value.to(q.dtype.element_ty), mask=both)
