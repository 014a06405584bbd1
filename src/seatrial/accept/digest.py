"""A digest of a tensor's bits, computed where the tensor lives, and the vote over digests that names who erred."""

import platform
from collections import Counter
from typing import TYPE_CHECKING

from seatrial.accept.check import MIN_SAMPLES, Finding
from seatrial.records import Measurement, Verdict

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


def judge_same_bits(digests: dict[int, tuple[int, ...]], part: str) -> list[Finding]:
    """Every part must give the digest that most give, every time. Parts that differ are named."""
    every = [value for found in digests.values() for value in found]
    if not every or any(len(found) < MIN_SAMPLES for found in digests.values()):
        return [(Verdict.INCONCLUSIVE, f"fewer than {MIN_SAMPLES} digests of a {part}")]
    ((agreed, votes),) = Counter(every).most_common(1)
    if votes * 2 <= len(every):
        return [(Verdict.FAIL, f"no majority among {len(every)} digests: every {part} of {sorted(digests)} is suspect")]
    findings: list[Finding] = []
    for name, found in digests.items():
        if wrong := sum(value != agreed for value in found):
            findings.append((Verdict.FAIL, f"{part} {name} computed other bits in {wrong} of {len(found)} repeats"))
    return findings or [(Verdict.PASS, f"{len(every)} digests equal on {len(digests)} {part}(s)")]


def digests_compared(digests: dict[int, tuple[int, ...]]) -> Measurement:
    count = sum(map(len, digests.values()))
    where = platform.node()
    return Measurement(name="digests compared", value=count, unit="digests", n=count, spread=0.0, where=where)
