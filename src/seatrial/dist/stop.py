"""Being asked to stop: a flag that signals and a file set, and that all ranks then agree on at a step boundary."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1)


class StopRequest:
    """``reason`` is empty until somebody asks."""

    def __init__(self, stop_file: Path) -> None:
        self._stop_file = stop_file
        self._signal = ""

    @property
    def reason(self) -> str:
        return self._signal or ("stop file" if self._stop_file.exists() else "")

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        if self._signal and number == signal.SIGINT:
            raise KeyboardInterrupt  # a second Ctrl-C: the user will not wait for the save
        self._signal = signal.Signals(number).name


@contextmanager
def stop_requests(stop_file: Path) -> Iterator[StopRequest]:
    """Turn SIGTERM, SIGINT and SIGUSR1 into a flag for the duration."""
    request = StopRequest(stop_file)
    before = {number: signal.signal(number, request._on_signal) for number in SIGNALS}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
