"""From packed 4-bit codes and doubly quantised scales straight to a matrix that the GPU multiplies.

bitsandbytes goes the same way in four kernels and holds the block scales in between; the result is the same, to the
bit. What bounds these is writing the matrix, so the tables are looked up where they fit in one line of the cache.

Shapes: as in seatrial.model.nf4.
"""

from collections.abc import Sequence

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCKS = 64


def dequantise(
    weight: Sequence[Tensor],
    tables: tuple[Tensor, Tensor],
    dtype: torch.dtype,
    *,
    blocks_a_program: int = _BLOCKS,
    warps: int = 4,
) -> Tensor:
    """[O, I] in ``dtype``, each product rounded once from float32. ``tables``: the codes of 4 bits, then of 8."""
    packed_OH, block_scales_OK, scales_OS, offsets_O = weight[:4]
    outs, halves = packed_OH.shape
    assert outs * halves < 2**30, "offsets are 32-bit"
    out_OI = torch.empty(outs, 2 * halves, dtype=dtype, device=packed_OH.device)
    blocks = block_scales_OK.numel()
    with torch.cuda.device_of(packed_OH):
        _dequantise[(triton.cdiv(blocks, blocks_a_program),)](
            packed_OH.view(torch.uint8),
            block_scales_OK.view(torch.uint8),
            scales_OS,
            offsets_O,
            *tables,
            out_OI,
            blocks,
            block_scales_OK.shape[1],
            scales_OS.shape[1],
            blocks_a_program,
            num_warps=warps,
            enable_fp_fusion=False,  # scale times code plus offset is rounded twice, as in two kernels
        )
    return out_OI


def to_fp8(
    weight: Sequence[Tensor],
    row_scales_O: Tensor,
    tables: tuple[Tensor, Tensor],
    *,
    transposed: bool,
    rows_a_program: int = 64,
    warps: int = 4,
) -> Tensor:
    """[O, I] or [I, O] in float8, each number divided by its row's scale before it is rounded."""
    packed_OH, block_scales_OK, scales_OS, offsets_O = weight[:4]
    outs, halves = packed_OH.shape
    assert outs * halves < 2**30, "offsets are 32-bit"
    shape = (2 * halves, outs) if transposed else (outs, 2 * halves)
    out = torch.empty(shape, dtype=torch.float8_e4m3fn, device=packed_OH.device)
    blocks = block_scales_OK.shape[1]
    with torch.cuda.device_of(packed_OH):
        # Programs of the same rows one after another: they share the lines that their block scales lie in.
        _to_fp8[(blocks, triton.cdiv(outs, rows_a_program))](
            packed_OH.view(torch.uint8),
            block_scales_OK.view(torch.uint8),
            scales_OS,
            offsets_O,
            row_scales_O,
            *tables,
            out,
            outs,
            blocks,
            scales_OS.shape[1],
            rows_a_program,
            transposed,
            num_warps=warps,
            enable_fp_fusion=False,
        )
    return out


@triton.jit
def _to_fp8(
    packed,
    block_scales,
    scales,
    offsets,
    row_scales,
    nf4_code,
    dynamic_code,
    out,
    rows,
    K: tl.constexpr,
    S: tl.constexpr,
    ROWS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):
    block = tl.program_id(0)
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    inside = row < rows
    code = tl.load(block_scales + row * K + block, mask=inside, other=0).to(tl.int32)
    second = tl.load(scales + row * S + block // 256, mask=inside, other=0.0)
    largest = tl.load(dynamic_code + code) * second + tl.load(offsets + row, mask=inside, other=0.0)
    inverse = tl.div_rn(1.0, tl.load(row_scales + row, mask=inside, other=1.0))
    at = row[:, None] * (K * 32) + block * 32 + tl.arange(0, 32)[None, :]
    pair = tl.load(packed + at, mask=inside[:, None], other=0).to(tl.int32)
    kind = out.dtype.element_ty
    even = (tl.load(nf4_code + (pair >> 4)) * largest[:, None] * inverse[:, None]).to(kind)
    odd = (tl.load(nf4_code + (pair & 15)) * largest[:, None] * inverse[:, None]).to(kind)
    both = tl.reshape(tl.join(even, odd), (ROWS, 64))
    column = block * 64 + tl.arange(0, 64)
    if TRANSPOSED:
        tl.store(out + column[:, None] * rows + row[None, :], tl.trans(both), mask=inside[None, :])
    else:
        tl.store(out + row[:, None] * (K * 64) + column[None, :], both, mask=inside[:, None])


@triton.jit
def _dequantise(
    packed,
    block_scales,
    scales,
    offsets,
    nf4_code,
    dynamic_code,
    out,
    blocks,
    K: tl.constexpr,
    S: tl.constexpr,
    BLOCKS: tl.constexpr,
):
    block = tl.program_id(0) * BLOCKS + tl.arange(0, BLOCKS)
    inside = block < blocks
    row = block // K
    code = tl.load(block_scales + block, mask=inside, other=0).to(tl.int32)
    second = tl.load(scales + row * S + (block % K) // 256, mask=inside, other=0.0)
    largest = tl.load(dynamic_code + code) * second + tl.load(offsets + row, mask=inside, other=0.0)
    at = block[:, None] * 32 + tl.arange(0, 32)[None, :]
    pair = tl.load(packed + at, mask=inside[:, None], other=0).to(tl.int32)
    kind = out.dtype.element_ty
    even = (tl.load(nf4_code + (pair >> 4)) * largest[:, None]).to(kind)
    odd = (tl.load(nf4_code + (pair & 15)) * largest[:, None]).to(kind)
    both = tl.reshape(tl.join(even, odd), (BLOCKS, 64))
    tl.store(out + block[:, None] * 64 + tl.arange(0, 64)[None, :], both, mask=inside[:, None])
