"""A frozen weight in 4 bits: NormalFloat4 in blocks of 64 with double quantisation (QLoRA, arXiv 2305.14314).

Quantised by bitsandbytes. One thing is laid out in another way: no block of any level leaves its row of the weight.
In bitsandbytes, the 256 block scales that share a second-level scale run over several rows, and all share one offset;
here each row has its own. A part of the rows quantised alone is then to the bit that part of the whole, so that
weights can be sharded, streamed and joined by rows. It costs 8 bytes a row, 0.2 % of a packed row of 4,096.

Shapes: O output width (rows), I input width, H = I / 2 packed bytes, K = I / 64 blocks, S = K / 256, rounded up.
"""

import logging
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from seatrial.errors import UsageError

BLOCK = 64
"""Weights that share a first-level scale: bitsandbytes' default, and the paper's."""
SECOND_BLOCK = 256
"""Block scales that share a second-level scale: as in the paper."""
BYTES = torch.float8_e5m2
"""The type that bytes are kept in, and a mark of this format. FSDP2 of torch 2.11 shards parameters of floating-point
types only; nothing computes with this one, and views of the same bytes as uint8 cost nothing."""


def quantise_nf4(weight_OI: Tensor) -> list[Tensor]:
    """Packed codes [O, H] and block scales [O, K] as bytes, second-level scales [O, S] and offsets [O] in float32.

    0.508 bytes a weight at I = 4,096. The even weight of a pair lies in the high half of its byte.

    Raises:
        UsageError: bitsandbytes is not installed, or the rows do not divide into blocks.
    """
    outs, ins = weight_OI.shape
    if ins % BLOCK:
        raise UsageError(f"model.base: nf4 wants input widths divisible by {BLOCK}, this model has {ins}; choose fp8")
    require_bitsandbytes("model.base: nf4")
    blocks = ins // BLOCK
    packed, largest = torch.ops.bitsandbytes.quantize_4bit(weight_OI.contiguous(), BLOCK, "nf4", torch.uint8)
    largest_OK = largest.view(outs, blocks)
    offsets_O = largest_OK.mean(1)
    # bitsandbytes on CUDA knows blocks of powers of two only, so rows are filled up with what changes no largest value.
    filled = torch.nn.functional.pad(largest_OK - offsets_O.unsqueeze(1), (0, -blocks % SECOND_BLOCK))
    scales, second = torch.ops.bitsandbytes.quantize_blockwise(filled, dynamic_code(filled.device), SECOND_BLOCK)
    block_scales_OK = scales.view(outs, -1)[:, :blocks].contiguous()
    return [packed.view(outs, ins // 2).view(BYTES), block_scales_OK.view(BYTES), second.view(outs, -1), offsets_O]


def dequantise_nf4(weight: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """[O, I] in ``dtype``: each code's number times its block's scale, in float32, rounded once."""
    packed_OH = weight[0].view(torch.uint8)
    if packed_OH.is_cuda:
        from seatrial.model.nf4_kernels import dequantise

        tables = nf4_code(packed_OH.device), dynamic_code(packed_OH.device)
        return dequantise(weight, tables, dtype)
    largest = block_largest(weight).flatten()
    shape = packed_OH.shape[0], 2 * packed_OH.shape[1]
    whole: Tensor = torch.ops.bitsandbytes.dequantize_4bit(packed_OH, largest, BLOCK, "nf4", shape, dtype)
    return whole


def nf4_row_scales(weight: Sequence[Tensor]) -> Tensor:
    """For products in float8: what each row of the float8 matrix is to be multiplied with, [O] float32.

    The largest block scale of a row is its largest weight: every block holds the code of one or minus one.
    """
    return block_largest(weight).abs().amax(1).clamp(min=1e-12) / torch.finfo(torch.float8_e4m3fn).max


def nf4_to_fp8(weight: Sequence[Tensor], row_scales_O: Tensor, *, transposed: bool = False) -> Tensor:
    """[O, I], or [I, O] for the backward product, in float8: each number of the matrix over its row's scale."""
    packed_OH = weight[0].view(torch.uint8)
    if packed_OH.is_cuda:
        from seatrial.model.nf4_kernels import to_fp8

        tables = nf4_code(packed_OH.device), dynamic_code(packed_OH.device)
        return to_fp8(weight, row_scales_O, tables, transposed=transposed)
    whole_OI = (dequantise_nf4(weight, torch.float32) * (1 / row_scales_O).unsqueeze(1)).to(torch.float8_e4m3fn)
    return whole_OI.t().contiguous() if transposed else whole_OI


def block_largest(weight: Sequence[Tensor]) -> Tensor:
    """The scale of each block, its largest weight, as it came out of the double quantisation: [O, K] float32."""
    _, block_scales_OK, scales_OS, offsets_O = weight[:4]
    second_OK = scales_OS.repeat_interleave(SECOND_BLOCK, 1)[:, : block_scales_OK.shape[1]]
    codes_OK = block_scales_OK.view(torch.uint8).int()
    return dynamic_code(block_scales_OK.device)[codes_OK] * second_OK + offsets_O.unsqueeze(1)


def require_bitsandbytes(setting: str) -> None:
    """Import it, which registers torch.ops.bitsandbytes.

    Raises:
        UsageError: it is not installed; ``setting`` says what needs it.
    """
    # On some CPUs it complains on import that it cannot download a kernel for inference.
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    try:
        import bitsandbytes  # noqa: F401
    except ImportError as error:
        raise UsageError(f"{setting} needs bitsandbytes: pip install 'seatrial[nf4]'") from error


@cache
def nf4_code(device: torch.device) -> Tensor:
    """The 16 numbers of NormalFloat4."""
    from bitsandbytes.functional import get_4bit_type

    return _for_all_streams(get_4bit_type("nf4", torch.device("cpu")), device)


@cache
def dynamic_code(device: torch.device) -> Tensor:
    """The 256 numbers of the 8-bit dynamic type (arXiv 1511.04561) that block scales are stored in."""
    from bitsandbytes.functional import create_dynamic_map

    return _for_all_streams(create_dynamic_map(), device)


def _for_all_streams(code: Tensor, device: torch.device) -> Tensor:
    """On the device and complete: of what is made once, streams other than the one that made it may read at once."""
    there = code.to(device)
    if there.is_cuda:
        torch.cuda.current_stream(device).synchronize()
    return there
