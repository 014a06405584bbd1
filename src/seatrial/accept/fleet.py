"""Which of several equal parts falls behind the others, whatever the absolute level."""

from collections.abc import Mapping, Sequence

from seatrial.accept.check import percentile

ROBUST_Z = 3.5
"""Modified z-score by the median absolute deviation (Iglewicz and Hoaglin, How to Detect and Handle Outliers, 1993)."""
LEAST_EFFECT = 0.05
"""Below the median: healthy GPUs of one node differ by up to 5 % (ml-engineering, compute/accelerator)."""
LEAST_PARTS = 4
"""Among fewer parts a median says nothing of who is odd."""


def stragglers(values: Mapping[str, float]) -> dict[str, float]:
    """By name, the share of the median that a part lacks: over 5 %, and far below in units of the spread."""
    if len(values) < LEAST_PARTS:
        return {}
    everyone = list(values.values())
    found = {name: falls_behind(value, everyone) for name, value in values.items()}
    return {name: lack for name, lack in found.items() if lack is not None}


def falls_behind(value: float, others: Sequence[float], least_effect: float = LEAST_EFFECT) -> float | None:
    """The share of the others' median that ``value`` lacks; None where that is little, or within their spread."""
    centre = percentile(others, 50)
    spread = percentile([abs(other - centre) for other in others], 50)
    if centre - value > least_effect * centre and 0.6745 * (centre - value) > ROBUST_Z * spread:
        return (centre - value) / centre
    return None
