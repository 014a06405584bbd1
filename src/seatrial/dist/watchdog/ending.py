"""Why the ranks of a node are ended, and which of several reasons is the cause of the others. No input or output."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from seatrial.dist.watchdog.farewell import Farewell
from seatrial.dist.watchdog.verdict import LAST_WORDS, Finding, RankView, find_death
from seatrial.errors import SeatrialError
from seatrial.records import JsonObject

FAREWELL_SECONDS = 2.0
"""What ranks get to say what they know after one of them was killed. Nothing that takes all of them can succeed."""

ERROR_SECONDS = 12.0
"""The same after one failed with an error: a save under way may still be completed (``ABANDON_SECONDS``)."""

FAILED = "failed"
CONNECTION_LOST = "connection lost"
"""What a rank fails with whose peer is gone, for whatever reason: never the cause where another is known."""

NODE_SILENT = "node silent"


@dataclass(frozen=True)
class Ending:
    """Why an attempt is ended, as an event, and what its ranks get until they are killed. ``at``: since the epoch."""

    event: str
    what: str
    finding: Finding
    seconds: float
    exit_code: int = SeatrialError.exit_code
    at: float = field(default_factory=time.time)

    @property
    def is_echo(self) -> bool:
        """Of something that happened to others."""
        return self.what == CONNECTION_LOST


def of_death(views: Sequence[RankView], launcher_end: str | None) -> Ending | None:
    """Of ranks that are gone without a last word, or of torchrun, which takes its ranks with it.

    Where some of them got to say one, torchrun was still there, and ended those because of the ones that were killed.

    Args:
        launcher_end: what to say of torchrun; None while it is there.
    """
    killed = find_death(views)
    silent = [view for view in views if view.phase not in LAST_WORDS]
    is_blamed = killed is not None and len(silent) < len(views)
    if launcher_end is not None and (silent or not views) and not is_blamed:
        return Ending("fault", "launcher killed", Finding(launcher_end), 0.0)
    return Ending("fault", "killed", killed, FAREWELL_SECONDS) if killed is not None else None


def of_error(failed: Sequence[RankView], error: Farewell | None, now: float) -> Ending:
    """Of ranks that failed, the first with ``error``. ``now``: seconds of the node's monotonic clock."""
    if error is None:
        return Ending("fault", FAILED, Finding("a rank failed", tuple(failed)), ERROR_SECONDS)
    what = CONNECTION_LOST if error.is_echo else FAILED
    finding = Finding(error.reason, tuple(view for view in failed if view.rank == error.rank))
    return Ending("fault", what, finding, ERROR_SECONDS, error.exit_code, time.time() - (now - error.at))


def of_silence(node: int, views: Sequence[RankView], seconds: float) -> Ending:
    """Of a node that tells nothing any more, though its ranks, as far as it told of them, had not ended."""
    living = tuple(view for view in views if view.is_under_way)
    where = f"node {node}" + (f" ({living[0].host}, {_ranks(living)})" if living else ", never heard of,")
    reason = f"{where} has told nothing for {seconds:.0f} s, and others lost its connection: it is down, or cut off"
    return Ending("fault", NODE_SILENT, Finding(reason, living), FAREWELL_SECONDS)


def of_standstill(finding: Finding) -> Ending:
    """Of ranks that get no further: because some of them are on nodes that tell nothing any more, or without that."""
    if finding.culprits and all(view.is_silent for view in finding.culprits):
        return Ending("fault", NODE_SILENT, finding, 0.0)
    return Ending("stall", "stall", finding, 0.0)


def of_link(ending: Ending) -> Ending:
    """Of connections that broke though every node is heard, and none lost a rank."""
    reason = f"{ending.finding.reason}; no node lost a rank, and none is silent: a link between nodes is cut, or slow"
    return replace(ending, finding=Finding(reason))


def strength(what: str) -> int:
    """The smaller, the nearer to the cause: that a rank is gone says more than an error, and an error than its echo."""
    return {FAILED: 1, CONNECTION_LOST: 2}.get(what, 0)


def is_true(outcome: JsonObject, ending: Ending) -> bool:
    """Whether what the first rank wrote down may stay.

    torchrun tells the other ranks to stop when one of them has ended, and they may take that for a wish. One that is
    killed because it did not stop in time dies later.
    """
    if outcome["status"] == "preempted":
        late = FAREWELL_SECONDS if ending.what == "killed" else 0.0
        return ending.what not in ("killed", FAILED, NODE_SILENT) or ending.at > outcome["time"] + late
    return bool(outcome["status"] == "done")


def _ranks(views: Sequence[RankView]) -> str:
    first, last = min(view.rank for view in views), max(view.rank for view in views)
    return f"rank {first}" if first == last else f"ranks {first} to {last}"
