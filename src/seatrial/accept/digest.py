"""A digest of a tensor's bits that is computed where the tensor lives, so that 8 bytes say whether two runs agree."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

ODD_MULTIPLIER = 0x9E3779B97F4A7C15 - 2**64
"""2^64 divided by the golden ratio, as a signed integer (D. Knuth, TAOCP 3, 6.4)."""


def digest(tensor: "torch.Tensor") -> int:
    """Sum of the raw bits, each weighted by an odd number of its position, modulo 2^64.

    Integer arithmetic wraps and is associative, so the digest does not depend on the order of the reduction; an odd
    weight lets no single changed element cancel.
    """
    import torch

    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()]
    bits = tensor.contiguous().view(integers).flatten().to(torch.int64)
    weights = torch.arange(bits.numel(), device=bits.device) * ODD_MULTIPLIER | 1
    return int((bits * weights).sum())
