"""A process that ends with the one that started it, however that ends. No torch."""

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG = 1


def die_with(parent: int) -> None:
    """Let the kernel kill this process when ``parent``, which started it, ends. Elsewhere than on Linux: nothing."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before we asked
            os.kill(os.getpid(), signal.SIGKILL)


def launcher() -> int:
    """The process id of torchrun's agent when it started this process; 0 when somebody else did."""
    return os.getppid() if "TORCHELASTIC_RUN_ID" in os.environ else 0


def die_with_launcher() -> None:
    """A worker whose agent was killed would train on, unseen, and write into the directory of the run that follows.

    torchrun does not tell its process id, so that a worker whose agent died before this call is known by having been
    given to process 1. Where another process takes orphans in, such a worker ends when it finds nobody to train with.
    """
    agent = launcher()
    if agent == 0:
        return
    if agent == 1 and b"torch" not in Path("/proc/1/cmdline").read_bytes():
        os.kill(os.getpid(), signal.SIGKILL)
    die_with(agent)
