"""A digest of a tensor's bits, computed where the tensor lives, and the vote over digests that names who erred."""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from seatrial.accept.check import MIN_SAMPLES, Finding
from seatrial.hardware import node_name
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


Tally = dict[int, int]
"""How often a part gave each digest."""


def judge_same_bits(tallies: Mapping[int, Tally], part: str) -> list[Finding]:
    """Every part must give the digest that most give, every time. Parts that differ are named."""
    counts = {name: sum(tally.values()) for name, tally in tallies.items()}
    if not counts or min(counts.values()) < MIN_SAMPLES or any(n < 1 for t in tallies.values() for n in t.values()):
        return [(Verdict.INCONCLUSIVE, f"fewer than {MIN_SAMPLES} digests of a {part}")]
    every: Counter[int] = sum((Counter(tally) for tally in tallies.values()), Counter())
    ((agreed, votes),) = every.most_common(1)
    if votes * 2 <= every.total():
        suspects = f"every {part} of {sorted(tallies)} is suspect"
        return [(Verdict.FAIL, f"no majority among {every.total()} digests: {suspects}")]
    findings: list[Finding] = []
    for name, tally in tallies.items():
        if wrong := counts[name] - tally.get(agreed, 0):
            findings.append((Verdict.FAIL, f"{part} {name} computed other bits in {wrong} of {counts[name]} repeats"))
    return findings or [(Verdict.PASS, f"{every.total()} digests equal on {len(tallies)} {part}(s)")]


def digests_compared(tallies: Mapping[int, Tally]) -> Measurement:
    count = sum(sum(tally.values()) for tally in tallies.values())
    where = node_name()
    return Measurement(name="digests compared", value=count, unit="digests", n=count, spread=0.0, where=where)
