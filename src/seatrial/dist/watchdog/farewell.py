"""The error that a rank ends with, left where the node's watchdog finds it: only the first one is the cause."""

import json
import re
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from seatrial.dist.heartbeat import heartbeat_directory
from seatrial.errors import SeatrialError

_OF_CONNECTIONS = re.compile(r"gloo/transport|Gloo connect|ncclRemoteError|collective operation timeout")
"""gloo's errors are plain RuntimeErrors, and name its source files; those of NCCL may also be a GPU's own."""


@dataclass(frozen=True)
class Farewell:
    """``at``: seconds of the node's monotonic clock. ``is_echo``: a connection broke, for want of a peer perhaps."""

    generation: str
    rank: int
    reason: str
    exit_code: int
    is_echo: bool
    at: float


def leave_error(run: Path, generation: str, rank: int, error: BaseException) -> None:
    """Called by the rank that fails."""
    reason = str(error) or type(error).__name__
    if not isinstance(error, SeatrialError):
        reason = f"rank {rank}: {type(error).__name__}: {reason}"
    code = error.exit_code if isinstance(error, SeatrialError) else SeatrialError.exit_code
    farewell = Farewell(generation, rank, reason, code, _is_of_connections(error), time.monotonic())
    with suppress(OSError):  # it is said on stderr too
        _file(run, rank).write_text(json.dumps(asdict(farewell)))


def first_error(run: Path, generation: str, ranks: Sequence[int]) -> Farewell | None:
    """Of those that train together. The others are what became of it: a peer that is gone breaks connections."""
    found = []
    for rank in ranks:
        with suppress(OSError, ValueError, TypeError):
            found.append(Farewell(**json.loads(_file(run, rank).read_text())))
    ours = [error for error in found if error.generation == generation]
    return min(ours, key=lambda error: (error.is_echo, error.at), default=None)


def _is_of_connections(error: BaseException) -> bool:
    of_torch = type(error).__name__ in ("DistNetworkError", "DistStoreError")  # by name: the watchdog needs no torch
    return of_torch or bool(_OF_CONNECTIONS.search(str(error)))


def _file(run: Path, rank: int) -> Path:
    return heartbeat_directory(run) / f"rank-{rank:05d}.error"
