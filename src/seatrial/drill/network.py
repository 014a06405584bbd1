"""Two nodes on one machine: network namespaces joined by a link that can be cut. Needs root."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from seatrial.drill.acts import LINK
from seatrial.drill.fault import Act
from seatrial.errors import SeatrialError
from seatrial.shell import run

_NET = "10.213.77"
_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True)
class Place:
    """A node: its address, and what starts a program in it (empty: on this machine as it is)."""

    address: str = "127.0.0.1"
    prefix: tuple[str, ...] = ()


CUTTING: tuple[Act, ...] = ("cut", "power")
"""Acts that need two networks."""


def can_cut() -> bool:
    """Whether namespaces can be made here."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        return False
    name = f"seatrial-probe-{os.getpid()}"
    made = run(["ip", "netns", "add", name], timeout_seconds=_TIMEOUT_SECONDS).ok
    return made and run(["ip", "netns", "del", name], timeout_seconds=_TIMEOUT_SECONDS).ok


@contextmanager
def nodes(count: int, *, apart: bool) -> Iterator[list[Place]]:
    """So many nodes; ``apart``: two, with a network of their own each, and a link between them called ``link0``.

    Raises:
        SeatrialError: the system refuses.
    """
    if not apart or count == 1:
        yield [Place()] * count
        return
    names = [f"seatrial-{os.getpid()}-{number}" for number in range(count)]
    # The name of the host has no address on the link, so that the libraries must be told where to listen.
    devices = ("env", f"GLOO_SOCKET_IFNAME={LINK}", f"NCCL_SOCKET_IFNAME={LINK}")
    places = [Place(f"{_NET}.{1 + at}", ("ip", "netns", "exec", name, *devices)) for at, name in enumerate(names)]
    try:
        for name in names:
            _ip("netns", "add", name)
        _ip("link", "add", LINK, "netns", names[0], "type", "veth", "peer", "name", LINK, "netns", names[1])
        for name, place in zip(names, places, strict=True):
            _ip("-n", name, "addr", "add", f"{place.address}/24", "dev", LINK)
            for device in (LINK, "lo"):
                _ip("-n", name, "link", "set", device, "up")
        yield places
    finally:
        for name in names:
            run(["ip", "netns", "del", name], timeout_seconds=_TIMEOUT_SECONDS)


def _ip(*arguments: str) -> None:
    done = run(["ip", *arguments], timeout_seconds=_TIMEOUT_SECONDS)
    if not done.ok:
        raise SeatrialError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
