"""Short messages between the ranks' background threads, through the store that the ranks met at.

No collectives: they would have to come in the same order as the training's own, and one rank's slow disk would break
a process group by its timeout.
"""

import pickle
import threading
from collections.abc import Sequence
from typing import Any

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore

from seatrial.errors import SeatrialError

_POLL_SECONDS = 0.05


class Exchange:
    """``name`` is this attempt's own, the same on all ranks."""

    def __init__(self, name: str) -> None:
        self._store = PrefixStore(f"checkpoint-{name}", dist.distributed_c10d._get_default_store())
        self._abandoned = threading.Event()

    def tell(self, key: str, value: Any) -> None:
        self._store.set(key, pickle.dumps(value))  # type: ignore[arg-type]  # bytes are fine, its stubs do not know

    def hear(self, keys: Sequence[str]) -> list[Any]:
        """The values told under ``keys``, as soon as all are there. Polls: a wait would keep the store from others.

        Raises:
            SeatrialError: :meth:`abandon` was called.
        """
        wait_seconds = _POLL_SECONDS / 16
        while not self._store.check(list(keys)):
            if self._abandoned.wait(wait_seconds):
                raise SeatrialError("the training ended before all ranks had written")
            wait_seconds = min(2 * wait_seconds, _POLL_SECONDS)
        return [pickle.loads(self._store.get(key)) for key in keys]

    def abandon(self) -> None:
        """Nobody will answer any more."""
        self._abandoned.set()
