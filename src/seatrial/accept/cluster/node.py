"""What each node tells the others before anything is measured: its fingerprint, its clock, the names it can resolve."""

import platform
import socket
import socketserver
import struct
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from seatrial import __version__
from seatrial.hardware import cpu_model, gpu_names, memory_total_gib, usable_cpus
from seatrial.shell import run

CLOCK_READS = 8
_TIME = struct.Struct("!d")


def fingerprint() -> dict[str, str]:
    """What should be the same on every node."""
    driver = run(
        ["nvidia-smi", "--query-gpu=driver_version,vbios_version", "--format=csv,noheader"], timeout_seconds=30
    )
    listed = sorted(set(driver.stdout.split("\n"))) if driver.ok else []
    return {
        "GPUs": ", ".join(gpu_names()) or "none",
        "driver": "; ".join(line for line in listed if line) or "none",
        "CPU": cpu_model(),
        "cores": str(usable_cpus()),
        "memory": f"{memory_total_gib():.0f} GiB",
        "kernel": platform.release(),
        "C library": " ".join(platform.libc_ver()).strip() or "unknown",
        "Python": platform.python_version(),
        "torch": _version("torch"),
        "NCCL": _version("nvidia-nccl-cu13", "nvidia-nccl-cu12"),
        "seatrial": __version__,
    }


def _version(*packages: str) -> str:
    for package in packages:
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return "none"


class _Clock(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while self.request.recv(1):
            self.request.sendall(_TIME.pack(time.time()))


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True


@contextmanager
def clock_server() -> Iterator[int]:
    """Tells whoever asks what time it is here; yields the port."""
    with _Server(("", 0), _Clock) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()


def clock_offset(address: str, port: int) -> tuple[float, float]:
    """(how far our clock is ahead of that one, half of the round trip), by the quickest of some readings (D. Mills,
    RFC 5905, 8).

    Raises:
        OSError: nobody answers there.
    """
    best = (0.0, float("inf"))
    with socket.create_connection((address, port), timeout=10) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(CLOCK_READS):
            before, start = time.time(), time.monotonic()
            line.sendall(b"?")
            (theirs,) = _TIME.unpack(line.recv(_TIME.size, socket.MSG_WAITALL))
            half = (time.monotonic() - start) / 2
            if half < best[1]:
                best = (before + half - theirs, half)
    return best


def unresolved(names: Iterable[str]) -> list[str]:
    missing = []
    for name in names:
        try:
            socket.getaddrinfo(name, None)
        except OSError:
            missing.append(name)
    return missing
