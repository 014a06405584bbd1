"""What this machine is made of, read without torch."""

import os
import platform
from functools import lru_cache
from pathlib import Path

from seatrial.shell import run

GB = 10**9
GIB = 2**30


def node_name() -> str:
    """What this machine is called by whoever chooses machines for jobs. In a container ``SEATRIAL_NODE_NAME`` tells it:
    the host name there is the container's, and not kept."""
    return os.environ.get("SEATRIAL_NODE_NAME") or platform.node()


def cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return os.uname().machine


def memory_total_gib() -> float:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB


def usable_cpus() -> int:
    """Cores this process may run on, which in a container is often fewer than the machine has."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def gpu_driver() -> str | None:
    """Version of the NVIDIA driver that is loaded, as in '580.95.05'; None where there is none."""
    loaded = Path("/sys/module/nvidia/version")
    return loaded.read_text().strip() if loaded.is_file() else None


@lru_cache(maxsize=1)
def gpu_names() -> tuple[str, ...]:
    """Names of the NVIDIA GPUs, empty where there is no driver."""
    listing = run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], timeout_seconds=30)
    return tuple(line.strip() for line in listing.stdout.splitlines() if line.strip()) if listing.ok else ()
