"""The ranks of one node: started, started anew when they die, and ended with their parent."""

import contextlib
import fcntl
import os
import signal
import socket
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from seatrial.accept.cluster import member
from seatrial.accept.cluster.board import Board

MAX_STARTS = 5
"""Of a rank: NCCL ends a process whose partner hangs, and a rank that keeps dying has a fault of its own."""


class Crew:
    """``seats`` of this node. Standard error of all goes to ``log``."""

    def __init__(self, seats: Sequence[member.Seat], log: Path, module: str = "seatrial.accept.cluster.member") -> None:
        self._seats, self._log, self._module = seats, log, module
        self._ranks: dict[int, subprocess.Popen[bytes]] = {}
        self._starts = [0] * len(seats)

    def __enter__(self) -> Self:
        for index in range(len(self._seats)):
            self._start(index, 0)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._ranks.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def mind(self, board: Board) -> None:
        """Start anew those that died, from the next order on."""
        for index, process in list(self._ranks.items()):
            if process.poll() not in (None, 0) and self._starts[index] < MAX_STARTS:
                self._start(index, board.read("orders") or 0)

    def _start(self, index: int, first_order: int) -> None:
        self._starts[index] += 1
        seat = self._seats[index].model_copy(update={"first_order": first_order})
        with self._log.open("ab") as log:
            self._ranks[index] = subprocess.Popen(
                member.argv(seat, self._module), stdout=log, stderr=log, start_new_session=True
            )


def interface_to(address: str) -> str:
    """The interface by which this node speaks to ``address``, so that gloo need not resolve names; empty if unclear."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))
        except OSError:
            return ""
        own = probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                request = struct.pack("256s", name.encode()[:15])
                found = fcntl.ioctl(probe.fileno(), 0x8915, request)  # SIOCGIFADDR, netdevice(7)
                if socket.inet_ntoa(found[20:24]) == own:
                    return name
    return ""
