"""Being asked to stop: by a signal, or by a file that appears.

Between two steps of a training a request is a flag, which all ranks then agree on, and save. Where there is nothing to
save (rows are read, weights loaded, kernels compiled; or no training at all) it ends the work at once.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from seatrial.errors import Preempted, StoppedAtOnce

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)
STEPS_UNTIL_ALL_SAVE = 3
"""Each rank queues one step ahead of the one it reads. Whoever has read the third knows that every rank queued it, and
so had read its first; until then another rank may still leave at once when all are asked to stop."""


class StopRequest:
    """``reason`` is empty until somebody asks."""

    def __init__(self, stop_file: Path | None, *, at_once: bool) -> None:
        self._stop_file = stop_file
        self._at_once = at_once
        self._steps_read = 0
        self._signal = ""
        self._asked = 0.0

    @property
    def reason(self) -> str:
        return self._signal or ("stop file" if self._stop_file is not None and self._stop_file.exists() else "")

    def has_time_for(self, seconds: float, grace_seconds: float) -> bool:
        """Whether something that takes so long ends before whoever sent a signal loses patience. Nobody asked: yes."""
        return not self._signal or time.monotonic() - self._asked + seconds < grace_seconds

    def has_read_a_step(self) -> None:
        """This rank has come to where it can save: a request is only a flag from here.

        Raises:
            StoppedAtOnce: it was asked for before.
        """
        if self._signal and self._has_nothing_to_save:
            raise self._stopped()
        self._steps_read += 1

    @property
    def _has_nothing_to_save(self) -> bool:
        return self._at_once and not self._steps_read

    @contextmanager
    def answered(self) -> Iterator[None]:
        """Whatever goes wrong once this rank, or another, was told to end at once is the end of it, not a failure.

        Raises:
            StoppedAtOnce: instead of any other error.
        """
        try:
            yield
        except Preempted:
            raise
        except Exception as error:
            if self._signal and self._at_once and self._steps_read < STEPS_UNTIL_ALL_SAVE:
                raise self._stopped() from error
            raise

    def _stopped(self) -> StoppedAtOnce:
        return StoppedAtOnce(f"stopped by {self._signal} with nothing to save; the same command does it again")

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._signal and number == signal.SIGINT:
            raise KeyboardInterrupt  # a second Ctrl-C: the user will not wait for the save
        first = not self._signal
        self._signal = signal.Signals(number).name
        if first:
            self._asked = time.monotonic()
        if first and self._has_nothing_to_save:
            raise self._stopped()


@contextmanager
def stop_requests(stop_file: Path | None = None, *, at_once: bool = False) -> Iterator[StopRequest]:
    """Turn SIGTERM, SIGINT and SIGUSR1 into a flag for the duration, or into StoppedAtOnce where they arrive."""
    request = StopRequest(stop_file, at_once=at_once)
    before = {number: signal.signal(number, request._on_signal) for number in SIGNALS}
    try:
        with request.answered():
            yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
