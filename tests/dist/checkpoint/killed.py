"""Make a checkpoint and die at a named moment of it. python -m tests.dist.checkpoint.killed FOLDER STEP MOMENT"""

import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

from seatrial.dist.checkpoint import work
from seatrial.dist.checkpoint.storage import Directory, _Synced
from seatrial.dist.checkpoint.work import Collect, collect
from tests.dist.checkpoint.plain import make


def die(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_half_way(path: Path) -> None:
    """In the place of rmtree: when some files are gone and some are there."""
    next(path.glob("*.safetensors")).unlink()
    die()


def main(folder: str, step: str, moment: str) -> None:
    rename, write = Directory.commit, _Synced.write
    match moment:
        case "writing":
            _Synced.write = lambda file, data: (write(file, data[:3]), die())[0]  # type: ignore[assignment, method-assign, func-returns-value]
        case "before the manifest":
            work.write_manifest = die  # type: ignore[assignment]
        case "between manifest and rename":
            Directory.commit = die  # type: ignore[assignment]
        case "after the rename":
            Directory.commit = lambda *args: (rename(*args), die())[0]  # type: ignore[method-assign, func-returns-value]
        case "collecting":
            shutil.rmtree = die_half_way  # type: ignore[assignment]
    storage = Directory(Path(folder))
    make(storage, int(step))
    collect(storage, Collect(keep=2), lambda: None)


if __name__ == "__main__":
    main(*sys.argv[1:])
