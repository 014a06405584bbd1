"""The measuring process on a disk that takes half a second for every fsync: run instead of the worker."""

import os
import time
from typing import Any

from seatrial.accept import worker

SLOWNESS_SECONDS = 0.5


def main() -> None:
    real = os.fsync

    def fsync(fd: Any) -> None:
        time.sleep(SLOWNESS_SECONDS)
        real(fd)

    os.fsync = fsync
    worker.main()


if __name__ == "__main__":
    main()
