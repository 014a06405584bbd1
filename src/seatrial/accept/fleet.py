"""Which of several equal parts falls behind the others, whatever the absolute level."""

from collections.abc import Mapping

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
    centre = percentile(list(values.values()), 50)
    spread = percentile([abs(value - centre) for value in values.values()], 50)
    return {
        name: (centre - value) / centre
        for name, value in values.items()
        if centre - value > LEAST_EFFECT * centre and 0.6745 * (centre - value) > ROBUST_Z * spread
    }
