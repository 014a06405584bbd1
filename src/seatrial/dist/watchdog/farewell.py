"""The error that a rank ends with, left where the node's watchdog finds it: only the first one is the cause."""

import json
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from seatrial.dist.heartbeat import heartbeat_directory
from seatrial.errors import SeatrialError


@dataclass(frozen=True)
class Farewell:
    """``at``: seconds of the node's monotonic clock."""

    rank: int
    reason: str
    exit_code: int
    at: float


def leave_error(run: Path, rank: int, error: BaseException) -> None:
    """Called by the rank that fails."""
    reason = str(error) or type(error).__name__
    if not isinstance(error, SeatrialError):
        reason = f"rank {rank}: {type(error).__name__}: {reason}"
    code = error.exit_code if isinstance(error, SeatrialError) else SeatrialError.exit_code
    with suppress(OSError):  # it is said on stderr too
        _file(run, rank).write_text(json.dumps(asdict(Farewell(rank, reason, code, time.monotonic()))))


def forget_error(run: Path, rank: int) -> None:
    """That of an earlier attempt."""
    _file(run, rank).unlink(missing_ok=True)


def first_error(run: Path, ranks: Sequence[int]) -> Farewell | None:
    """The others are what became of it: a peer that is gone looks like a broken connection."""
    found = []
    for rank in ranks:
        with suppress(OSError, ValueError, TypeError):
            found.append(Farewell(**json.loads(_file(run, rank).read_text())))
    return min(found, key=lambda error: error.at, default=None)


def _file(run: Path, rank: int) -> Path:
    return heartbeat_directory(run) / f"rank-{rank:05d}.error"
