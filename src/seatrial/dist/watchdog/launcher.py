"""torchrun's agent, seen from beside: it must hear how its ranks ended, whatever became of it meanwhile."""

import os
import signal
import time
from contextlib import suppress

from seatrial.dist.watchdog.sight import process_state

STOPPED_SECONDS = 3.0
"""A torchrun stopped for longer is said. Training goes on without it."""


class Launcher:
    """torchrun's agent on this node, which restarts ranks that end; none when its process id is 0."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._stopped_since: float | None = None

    @property
    def end(self) -> str:
        return f"torchrun (process {self._pid}) has ended, and its ranks with it"

    @property
    def stop(self) -> str:
        return (
            f"torchrun (process {self._pid}) is stopped (SIGSTOP); training goes on, and torchrun is made to go on "
            "(SIGCONT) when its ranks have ended"
        )

    def is_gone(self) -> bool:
        return self._pid != 0 and not process_state(self._pid)

    def is_stopped(self) -> bool:
        return self._pid != 0 and process_state(self._pid) == "T"

    def was_stopped(self) -> bool:
        """Whether it has been stopped for long enough to say so; once for each time that it is."""
        if not self.is_stopped():
            self._stopped_since = None
            return False
        now = time.monotonic()
        if self._stopped_since is None:
            self._stopped_since = now
        if now - self._stopped_since < STOPPED_SECONDS:
            return False
        self._stopped_since = float("inf")
        return True

    def wake(self) -> None:
        """When its ranks are gone it would keep their place for nothing, and nobody would hear of their end."""
        with suppress(ProcessLookupError):
            if self.is_stopped():
                os.kill(self._pid, signal.SIGCONT)
