"""When to save, by the clock. Pure."""

import math
from collections.abc import Sequence

FIRST_SECONDS = 60.0
"""Until the first save, whose cost nobody knows: soon, so that storage that cannot be written to shows early."""


def interval_seconds(save_seconds: Sequence[float], mtbf_hours: float) -> float:
    """Seconds from one save to the next: sqrt(2 C M), with C the cost of a save and M the mean time between failures.

    Young, CACM 17(9), 1974, first order; Daly, FGCS 22(3), 2006. C is the mean of the whole durations seen so far,
    though training waits for a fraction of that: while a save is being written there is nothing newer to resume from,
    and storage is shared.

    Args:
        save_seconds: what saves of this run took, from the copy to the commit.
    """
    if not save_seconds:
        return FIRST_SECONDS
    return math.sqrt(2 * (sum(save_seconds) / len(save_seconds)) * mtbf_hours * 3600)
