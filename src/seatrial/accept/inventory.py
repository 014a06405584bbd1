"""Which NVIDIA GPUs this machine should show, so that a broken driver is never taken for a machine without GPUs."""

import os
from dataclasses import dataclass
from pathlib import Path

from seatrial.shell import Output, run

NVIDIA_VENDOR = "0x10de"
PCI_3D_CONTROLLER = "0x0302"
"""The class of data-center GPUs; display cards (0x0300) are often driven by something else on purpose."""


@dataclass(frozen=True)
class Inventory:
    """``listed`` by the driver; ``on_bus`` seen by the kernel; ``driver_answer`` is what nvidia-smi said.

    ``visible`` is how many CUDA_VISIBLE_DEVICES names, None where it is not set.
    """

    listed: tuple[str, ...]
    on_bus: int
    in_container: bool
    driver_installed: bool
    driver_answer: str
    visible: int | None

    @property
    def gpus(self) -> int:
        """GPUs to be tested: what the driver lists, or what it ought to list.

        A container sees the whole host's bus but only its own GPUs, so without a driver it has none; anywhere else, a
        GPU on the bus that no driver lists is to be tested, and will fail.
        """
        there = max(len(self.listed), self.on_bus)
        if self.in_container:
            there = len(self.listed) or int(self.driver_installed and self.on_bus > 0)
        return there if self.visible is None else min(there, self.visible)


def take_inventory() -> Inventory:
    """Ask nvidia-smi and the PCI bus."""
    answer = run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], timeout_seconds=60)
    return read_inventory(answer, pci_gpus(), in_container(), os.environ.get("CUDA_VISIBLE_DEVICES"))


def read_inventory(answer: Output, on_bus: int, container: bool, visible: str | None = None) -> Inventory:
    """Pure: the inventory that an answer of ``nvidia-smi --query-gpu=name`` stands for."""
    names = tuple(line.strip() for line in answer.stdout.splitlines() if line.strip()) if answer.ok else ()
    said = (answer.stderr.strip() or answer.stdout.strip() or "no output").splitlines()[0]
    missing = answer.returncode is None and "no such program" in answer.stderr
    named = None if visible is None else len([name for name in visible.split(",") if name.strip() not in ("", "-1")])
    return Inventory(names, on_bus, container, not missing, said, named)


def pci_gpus(devices: Path = Path("/sys/bus/pci/devices")) -> int:
    """NVIDIA data-center GPUs on the PCI bus; 0 where the bus is not shown."""
    found = 0
    for device in devices.glob("*"):
        try:
            vendor, kind = (device / "vendor").read_text(), (device / "class").read_text()
        except OSError:
            continue
        found += vendor.strip() == NVIDIA_VENDOR and kind.startswith(PCI_3D_CONTROLLER)
    return found


def in_container() -> bool:
    marks = (Path("/.dockerenv"), Path("/run/.containerenv"), Path("/run/systemd/container"))
    return any(mark.exists() for mark in marks) or "KUBERNETES_SERVICE_HOST" in os.environ
