"""Rounding gradients to whole numbers and adding them up, in one pass over the memory.

Shapes: N numbers.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from seatrial.dist.fixed_point import SCALE

_BLOCK = 2048


def add_fixed(flat_N: Tensor, sum_N: Tensor | None, refused: Tensor, limit: float) -> Tensor:
    """As :func:`seatrial.dist.fixed_point.add_fixed`, to the bit."""
    first = sum_N is None
    into_N = torch.empty(flat_N.shape, dtype=torch.int64, device=flat_N.device) if sum_N is None else sum_N
    count = flat_N.numel()
    with torch.cuda.device_of(flat_N):
        _add_fixed[(triton.cdiv(count, _BLOCK),)](flat_N, into_N, refused, count, limit, SCALE, first, _BLOCK)
    return into_N


@triton.jit
def _add_fixed(flat, into, refused, count, limit, SCALE: tl.constexpr, FIRST: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    value = tl.load(flat + at, mask=inside, other=0.0)
    sound = tl.abs(value) < limit  # false of NaN
    whole = tl.floor(tl.where(sound, value, 0.0) * SCALE + 0.5).to(tl.int64)
    if not FIRST:
        whole += tl.load(into + at, mask=inside, other=0)
    tl.store(into + at, whole, mask=inside)
    broken = tl.max((~sound & inside).to(tl.int32), axis=0)
    tl.atomic_max(refused, broken, mask=broken > 0)  # of all the order in which it happens does not matter
