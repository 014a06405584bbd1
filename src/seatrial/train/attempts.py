"""Whether to try once more: a run that fails again and again without getting further is ended for good."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from seatrial.errors import ImpossibleConfiguration, UsageError
from seatrial.records import JsonObject

GAVE_UP = "gave up"
UNHEARD = "ended unheard"
"""What an attempt is said to have done that nobody could tell of: the one after it does."""

_TELLING = ("failed", "fault", "stall")


@dataclass(frozen=True)
class Standstill:
    """``attempts`` in a row failed and committed no step that was not committed before; why the last one did."""

    attempts: int = 0
    reason: str = ""


def standstill(events: Sequence[JsonObject]) -> Standstill:
    """From the events of all attempts so far, each of which begins with "start" and ends with something or nothing.

    An attempt that was asked to stop did not fail, and one that was refused is its user's to mend: neither says
    anything. One that was told to stop because it had failed did: that is found out later. One that ended without a
    word was killed together with all that watched it.
    """
    furthest, failed, reason = -1, 0, ""
    under_way, was_stopped, told = False, False, ""
    for event in [*events, {"event": "start"}]:
        kind = event["event"]
        if kind == "start":
            if under_way:
                failed, reason = failed + 1, told or "all its processes were killed at once"
            under_way, was_stopped, told = True, False, ""
        elif kind == "save" and event["step"] > furthest:
            furthest, failed, under_way = event["step"], 0, False
        elif kind == "preempted":
            under_way, was_stopped = False, under_way
        elif kind == "done" or event.get("exit_code") == UsageError.exit_code:
            under_way = False
        elif kind in _TELLING and event.get("reason") and (under_way or (was_stopped and kind == "failed")):
            under_way, told = True, event["reason"]
    return Standstill(failed, reason)


def ended_unheard(events: Sequence[JsonObject]) -> int | None:
    """The number of the last attempt, if neither it nor a watchdog said how it ended: all were killed at once."""
    starts = [at for at, event in enumerate(events) if event["event"] == "start"]
    if not starts or any(_ends(event) for event in events[starts[-1] :]):
        return None
    return int(events[starts[-1]]["attempt"])


def _ends(event: JsonObject) -> bool:
    # A watchdog's word carries the attempt that it ended; other faults, such as a damaged file, end none.
    return event["event"] in ("done", "preempted", "failed") or (
        event["event"] in ("fault", "stall") and "attempt" in event
    )


def refuse_standstill(events: Sequence[JsonObject], most: int, environment: Mapping[str, str] = os.environ) -> None:
    """End a loop of restarts that leads nowhere.

    After it was ended, whoever starts the run again has mended something, and gets as many attempts again; torchrun,
    which starts its workers again whatever they say, has not.

    Raises:
        ImpossibleConfiguration: ``most`` attempts in a row failed without committing a step; names the last failure.
    """
    ended = [at for at, event in enumerate(events) if event.get("what") == GAVE_UP]
    restarted = int(environment.get("TORCHELASTIC_RESTART_COUNT") or 0) > 0
    if ended and restarted:
        raise ImpossibleConfiguration(events[ended[-1]]["reason"])
    still = standstill(events[ended[-1] + 1 if ended else 0 :])
    if still.attempts >= most:
        raise ImpossibleConfiguration(
            f"{still.attempts} attempts in a row failed without committing a step, the last one with: {still.reason}; "
            "mend that and start the run again, or let it save more often (checkpoint.every_steps)"
        )
