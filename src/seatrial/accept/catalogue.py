"""The ladder: every check in the order in which it is put, and how a budget of seconds is divided among them."""

import re
from collections.abc import Sequence

from seatrial.accept.check import AnyCheck
from seatrial.accept.checks import (
    collectives,
    cpu,
    fabric,
    gpu,
    gpu_compute,
    gpu_link,
    gpu_memory,
    host,
    mounts,
    rdma,
    storage,
)
from seatrial.accept.cluster import checks as between
from seatrial.accept.training import checks as training
from seatrial.errors import UsageError

LADDER: tuple[AnyCheck, ...] = (
    *host.CHECKS,
    *cpu.CHECKS,
    *gpu.BEFORE_LOAD,
    *gpu_link.CHECKS,
    *gpu_memory.CHECKS,
    *gpu_compute.CHECKS,
    *gpu.AFTER_LOAD,
    *rdma.BEFORE_LOAD,
    *fabric.CHECKS,
    *collectives.CHECKS,
    *rdma.AFTER_LOAD,
    *storage.CHECKS,
    *mounts.CHECKS,
    *training.CHECKS,
)
EVERY = (*LADDER, *between.CHECKS)
"""With those between nodes, which several nodes answer together after each has climbed its ladder."""
LIMITS = {limit.name: limit for check in LADDER for limit in check.limits}
GROUPS = tuple(dict.fromkeys(check.group for check in LADDER))

SAMPLING_SHARE = 0.5
"""Of the budget: the rest goes to starting processes, warming up and checking correctness."""
LEAST_SECONDS, MOST_SECONDS = 0.3, 900.0


def choose(wanted: Sequence[str]) -> tuple[AnyCheck, ...]:
    """Checks of the named groups, or the named checks themselves, in the ladder's order; all when none is named.

    Raises:
        UsageError: a name is neither a group nor a check.
    """
    names = {check.name for check in LADDER}
    for name in wanted:
        if name not in GROUPS and name not in names:
            raise UsageError(f"--checks {name}: no such group or check; groups: {', '.join(GROUPS)}")
    return tuple(check for check in LADDER if not wanted or check.group in wanted or check.name in wanted)


def find(name: str) -> AnyCheck:
    """Raises: UsageError: there is no such check."""
    for check in EVERY:
        if check.name == name:
            return check
    raise UsageError(f"{name}: no such check; there are: {', '.join(check.name for check in EVERY)}")


def seconds_of(text: str) -> float:
    """``90s``, ``3m``, ``2h`` or a number of seconds.

    Raises:
        UsageError: anything else, or zero.
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh]?)", text.strip())
    if not match or float(match[1]) == 0:
        raise UsageError(f"--budget {text}: expected a time such as 90s, 3m, 20m or 2h")
    return float(match[1]) * {"": 1, "s": 1, "m": 60, "h": 3600}[match[2]]


def sampling_seconds(checks: Sequence[AnyCheck], budget_seconds: float) -> dict[str, float]:
    """Seconds that each check may sample, by name, in proportion to its share."""
    total = sum(check.share for check in checks) or 1.0
    return {
        check.name: min(max(SAMPLING_SHARE * budget_seconds * check.share / total, LEAST_SECONDS), MOST_SECONDS)
        for check in checks
    }
