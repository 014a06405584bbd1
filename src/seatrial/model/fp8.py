"""Float8 with a scale for each row: casting to it, and products of it.

Shapes: T rows (tokens), K summed width, N columns, W width of a row.
"""

from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from seatrial.model.cublaslt import add_product

FP8 = torch.float8_e4m3fn
FP8_MAX = 448.0
"""Largest finite number of float8 e4m3fn (arXiv 2209.05433)."""
SMALLEST = 1e-12
"""What a row of zeros counts as its largest."""


def has_fp8_units(device: torch.device) -> bool:
    """Whether this device multiplies float8 itself. The others widen to bfloat16 first: same result, no faster."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9)


def quantise_rows(x: Tensor) -> tuple[Tensor, Tensor]:
    """[..., W] -> float8 of the same shape and float32 scales [..., 1] with x = q * scale, the row's largest at 448."""
    largest = x.abs().amax(-1, keepdim=True).float().clamp(min=SMALLEST)
    return (x.float() * (FP8_MAX / largest)).to(FP8), largest / FP8_MAX


@torch.library.custom_op("seatrial::quantise_joined", mutates_args=())
def quantise_joined(parts: Sequence[Tensor], column_scales_W: Tensor) -> tuple[Tensor, Tensor]:
    """quantise_rows of the parts side by side, times the column scales; opaque to torch.compile."""
    if has_fp8_units(column_scales_W.device) and len(parts) <= 3:
        from seatrial.model.fp8_kernels import cast_joined_rows

        return cast_joined_rows([part.contiguous() for part in parts], column_scales_W)
    return quantise_rows(torch.cat(list(parts), 1) * column_scales_W)


@quantise_joined.register_fake
def _(parts: Sequence[Tensor], column_scales_W: Tensor) -> tuple[Tensor, Tensor]:
    tokens, width = parts[0].shape[0], column_scales_W.shape[0]
    return parts[0].new_empty((tokens, width), dtype=FP8), parts[0].new_empty((tokens, 1), dtype=torch.float32)


def transposed(q_NK: Tensor) -> Tensor:
    """[N, K] -> [K, N], in memory: float8 units multiply rows with rows."""
    if has_fp8_units(q_NK.device):
        from seatrial.model import fp8_kernels

        return fp8_kernels.transposed(q_NK)
    return q_NK.t().contiguous()


def fp8_product(x_TK: Tensor, scales_T1: Tensor, y_NK: Tensor, scales_N: Tensor | None, out: torch.dtype) -> Tensor:
    """x y^T of two float8 matrices with a scale for each of their rows, accumulated in float32: [T, N]."""
    if has_fp8_units(x_TK.device):
        columns = _ones(y_NK.shape[0], y_NK.device) if scales_N is None else scales_N.unsqueeze(0)
        return torch._scaled_mm(x_TK, y_NK.t(), scales_T1, columns, out_dtype=out, use_fast_accum=True)
    wide = torch.bfloat16 if x_TK.is_cuda else torch.float32
    product = (x_TK.to(wide) @ y_NK.to(wide).t()).float() * scales_T1
    return (product if scales_N is None else product * scales_N).to(out)


def fp8_product_onto(out_TN: Tensor, x_TK: Tensor, scales_T1: Tensor, y_NK: Tensor, scales_N: Tensor | None) -> Tensor:
    """``out`` with fp8_product(x, y) added in place, where ``adds_onto`` says that the units do."""
    scales_N = _ones(y_NK.shape[0], y_NK.device) if scales_N is None else scales_N
    add_product(out_TN, x_TK, scales_T1, y_NK, scales_N)
    return out_TN


@cache
def _ones(count: int, device: torch.device) -> Tensor:
    """What columns without scales are scaled with. Kept, because filling it takes as long as launching it does."""
    return torch.ones(1, count, device=device)
