"""The board on which nodes leave what they have to say: torch's TCPStore, never waited on without a limit."""

import json
import threading
import time
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Self

from seatrial.errors import SeatrialError

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

POLL_SECONDS = 0.02
BEAT_SECONDS = 1.0
JOIN_SECONDS = 300.0


class Unreachable(SeatrialError):
    """The node that keeps the board does not answer."""


class Board:
    """Notes by name, in JSON. One client; its calls are short, so threads may share it."""

    def __init__(self, store: "Store") -> None:
        self.store = store

    @classmethod
    def at(cls, address: str, port: int, *, host: bool, prefix: str, timeout_seconds: float = JOIN_SECONDS) -> Self:
        """Join the board, or keep it.

        Raises:
            Unreachable: nobody keeps it at this address.
        """
        from torch._C._distributed_c10d import PrefixStore, TCPStore

        try:
            store = TCPStore(
                address, port, None, host, timedelta(seconds=timeout_seconds), wait_for_workers=False, multi_tenant=True
            )
        except (RuntimeError, OSError) as error:
            raise Unreachable(f"no answer from {address}:{port} within {timeout_seconds:.0f} s: {error}") from error
        return cls(PrefixStore(prefix, store))

    def post(self, name: str, value: object) -> None:
        self.store.set(name, json.dumps(value))

    def read(self, name: str) -> Any:
        """None where nobody posted it yet.

        Raises:
            Unreachable: the node that keeps the board is gone.
        """
        try:
            return json.loads(self.store.get(name)) if self.store.check([name]) else None
        except (RuntimeError, OSError) as error:
            raise Unreachable(f"the node that keeps the board is gone: {error}") from error

    def wait(self, name: str, seconds: float) -> Any:
        """None when ``seconds`` pass without it."""
        return self.gather([name], seconds).get(name)

    def gather(
        self, names: Iterable[str], seconds: float, hopeless: Callable[[str], bool] = lambda name: False
    ) -> dict[str, Any]:
        """What was posted within ``seconds``. A name that ``hopeless`` gives up is not waited for."""
        missing = dict.fromkeys(names)
        found: dict[str, Any] = {}
        end = time.monotonic() + seconds
        while missing:
            for name in list(missing):
                value = self.read(name)
                if value is not None:
                    found[name] = value
                if value is not None or hopeless(name):
                    del missing[name]
            if time.monotonic() > end:
                break
            time.sleep(POLL_SECONDS)
        return found


class Heart:
    """Says every second that this node lives, and what it is doing."""

    def __init__(self, board: Board, node: int) -> None:
        self._board, self._node = board, node
        self._stop = threading.Event()
        self.doing = "starting"

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._beat, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(2 * BEAT_SECONDS)

    def _beat(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            try:
                self._board.post(f"beat/{self._node}", {"number": number, "doing": self.doing})
            except (RuntimeError, OSError):
                return  # whoever keeps the board is gone; the main thread will learn it too
            self._stop.wait(BEAT_SECONDS)


class Pulses:
    """When each node was last heard of, by the clock of the node that listens."""

    def __init__(self, board: Board, nodes: int, *, silent_seconds: float, appear_seconds: float) -> None:
        self._board = board
        self._limits = (silent_seconds, appear_seconds)
        self._listened = 0.0
        self._heard: dict[int, tuple[int, float, str]] = {}
        self._nodes = nodes
        self._began = time.monotonic()

    def dead(self, node: int) -> bool:
        """Silent for too long; a node that never spoke has longer, since schedulers start nodes one after another."""
        if time.monotonic() - self._listened > BEAT_SECONDS / 2:
            self._listen()
        silent, appear = self._limits
        return self.silent_seconds(node) > (silent if node in self._heard else appear)

    def _listen(self) -> None:
        self._listened = time.monotonic()
        for node in range(self._nodes):
            beat = self._board.read(f"beat/{node}")
            if beat and (node not in self._heard or self._heard[node][0] != beat["number"]):
                self._heard[node] = (beat["number"], time.monotonic(), beat["doing"])

    def silent_seconds(self, node: int) -> float:
        return time.monotonic() - (self._heard[node][1] if node in self._heard else self._began)

    def last(self, node: int) -> str:
        """``last heartbeat 43 s ago, during gpu.gemm_bf16``."""
        if node not in self._heard:
            return f"no heartbeat in {self.silent_seconds(node):.0f} s: it never appeared"
        return f"last heartbeat {self.silent_seconds(node):.0f} s ago, during {self._heard[node][2]}"
