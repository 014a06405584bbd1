"""Which numbers dropout keeps: a hash of their place and a key.

Shapes: T tokens, W width.
"""

import torch
from torch import Tensor


def dropped(x_TW: Tensor, key: Tensor, share: float) -> Tensor:
    """x with about ``share`` of it set to zero and the rest divided by ``1 - share``."""
    return torch.where(kept(key, x_TW.shape[0], x_TW.shape[1], share), x_TW * (1 / (1 - share)), 0)


def kept(key: Tensor, tokens: int, width: int, share: float) -> Tensor:
    """Bool [T, W], true with probability ``1 - share``. ``key``: two int32.

    Mixes as lowbias32 does (C. Wellons, "Prospecting for Hash Functions", 2018), with the second half of the key
    between its rounds, so that the masks of two keys are not permutations of one another. Numbers wrap around at
    32 bits; a shift to the right copies the sign, which the "and" behind it takes off again.
    """
    token_T1 = torch.arange(tokens, dtype=torch.int32, device=key.device).unsqueeze(1)
    hashed = (token_T1 * width + torch.arange(width, dtype=torch.int32, device=key.device)) ^ key[0]
    hashed = (hashed ^ (hashed >> 16 & 0xFFFF)) * 0x7FEB352D
    hashed = hashed ^ key[1]
    hashed = (hashed ^ (hashed >> 15 & 0x1FFFF)) * (0x846CA68B - 2**32)
    hashed = hashed ^ (hashed >> 16 & 0xFFFF)
    return hashed >= round(share * 2**32) - 2**31
