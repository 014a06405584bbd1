"""From packed 4-bit codes and doubly quantised scales straight to a matrix that the GPU multiplies.

bitsandbytes goes the same way in four kernels and holds the block scales in between; the result is the same, to the
bit. What bounds these is writing the matrix, so the tables are looked up where they fit in one line of the cache.

Shapes: as in seatrial.model.nf4.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

_BLOCKS = 64


def dequantise(
    packed_OH: Tensor,
    block_scales_OK: Tensor,
    scales_OS: Tensor,
    offsets_O: Tensor,
    nf4_code: Tensor,
    dynamic_code: Tensor,
    dtype: torch.dtype,
    *,
    blocks_a_program: int = _BLOCKS,
    warps: int = 4,
) -> Tensor:
    """[O, I] in ``dtype``, each product rounded once from float32."""
    outs, halves = packed_OH.shape
    assert outs * halves < 2**30, "offsets are 32-bit"
    out_OI = torch.empty(outs, 2 * halves, dtype=dtype, device=packed_OH.device)
    blocks = block_scales_OK.numel()
    with torch.cuda.device_of(packed_OH):
        _dequantise[(triton.cdiv(blocks, blocks_a_program),)](
            packed_OH,
            block_scales_OK,
            scales_OS,
            offsets_O,
            nf4_code,
            dynamic_code,
            out_OI,
            blocks,
            block_scales_OK.shape[1],
            scales_OS.shape[1],
            blocks_a_program,
            num_warps=warps,
            enable_fp_fusion=False,  # scale times code plus offset is rounded twice, as in two kernels
        )
    return out_OI


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
