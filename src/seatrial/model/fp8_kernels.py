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


def cast_and_multiply(
    x_TPW: Tensor, largest_T: Tensor, column_scales_PW: Tensor, right_PWR: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """quantise_rows(x * column scales), and x times ``right``, part by part, from one reading of x.

    P parts lie side by side in a row and are cast with one scale; ``largest``: of each row after scaling, in float32.
    Returns float8 [T, PW], scales [T, 1] and the products [T, PR] in the type of x.
    """
    tokens, parts, width = x_TPW.shape
    rank = right_PWR.shape[2]
    q_TW = x_TPW.new_empty((tokens, parts * width), dtype=FP8)
    row_scales_T1 = x_TPW.new_empty((tokens, 1), dtype=torch.float32)
    products_TR = x_TPW.new_empty(tokens, parts * rank)
    rows, columns = 128, 128
    _cast_and_multiply_kernel[(triton.cdiv(tokens, rows), parts)](
        x_TPW, largest_T, column_scales_PW, right_PWR, q_TW, row_scales_T1, products_TR,
        tokens, width, FP8_MAX, SMALLEST, rank, rows, columns, num_warps=4, num_stages=3,
    )  # fmt: skip
    return q_TW, row_scales_T1, products_TR


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
def _cast_and_multiply_kernel(
    x, largest, scales, right, q, row_scales, products,
    tokens, width, MOST: tl.constexpr, SMALLEST: tl.constexpr,
    RANK: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    part, parts = tl.program_id(1), tl.num_programs(1)
    there = row < tokens
    wide = row.to(tl.int64)[:, None]
    rank = tl.arange(0, RANK)[None, :]
    most = tl.maximum(tl.load(largest + row, mask=there, other=1.0), SMALLEST)
    tl.store(row_scales + row, most / MOST, mask=there)
    factor = (MOST / most)[:, None]
    total = tl.zeros((ROWS, RANK), dtype=tl.float32)
    for start in range(0, width, COLUMNS):
        local = start + tl.arange(0, COLUMNS)
        inside = local < width
        column = part * width + local
        both = there[:, None] & inside[None, :]
        at = wide * (parts * width) + column[None, :]
        value = tl.load(x + at, mask=both, other=0.0)
        skinny = tl.load(right + column[:, None] * RANK + rank, mask=inside[:, None], other=0.0)
        scaled = value.to(tl.float32) * tl.load(scales + column, mask=inside, other=0.0)[None, :]
        tl.store(q + at, (scaled * factor).to(q.dtype.element_ty), mask=both)
        total = tl.dot(value, skinny, total)
    to = products + wide * (parts * RANK) + part * RANK + rank
    tl.store(to, total.to(products.dtype.element_ty), mask=there[:, None])
