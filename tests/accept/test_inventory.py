"""A broken driver is never taken for a machine without GPUs."""

from pathlib import Path

from seatrial.accept.inventory import pci_gpus, read_inventory
from seatrial.shell import Output


def answer(returncode: int | None, stdout: str = "", stderr: str = "") -> Output:
    return Output(("nvidia-smi",), returncode, stdout, stderr, 0.1)


ABSENT = answer(None, stderr="nvidia-smi: no such program")
BROKEN = answer(9, stdout="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n")


def test_gpus_that_the_driver_lists() -> None:
    inventory = read_inventory(answer(0, "NVIDIA H200\nNVIDIA H200\n"), 2, container=False)
    assert (inventory.listed, inventory.gpus) == (("NVIDIA H200",) * 2, 2)


def test_a_machine_without_gpus() -> None:
    inventory = read_inventory(ABSENT, 0, container=False)
    assert inventory.gpus == 0
    assert inventory.driver_answer == "nvidia-smi: no such program"


def test_a_driver_that_fails_or_says_nothing_leaves_the_gpus_to_be_tested() -> None:
    assert read_inventory(BROKEN, 8, container=False).gpus == 8
    assert read_inventory(answer(0, ""), 8, container=False).gpus == 8
    assert read_inventory(ABSENT, 8, container=False).gpus == 8
    assert read_inventory(BROKEN, 8, container=True).gpus == 1


def test_a_gpu_that_fell_off_the_bus_is_still_expected() -> None:
    assert read_inventory(answer(0, "NVIDIA H100 80GB HBM3\n" * 7), 8, container=False).gpus == 8


def test_a_container_sees_the_hosts_bus_but_has_its_own_gpus() -> None:
    assert read_inventory(ABSENT, 8, container=True).gpus == 0
    assert read_inventory(answer(0, "NVIDIA H200\n"), 8, container=True).gpus == 1


def test_gpus_that_the_environment_hides_are_not_tested() -> None:
    eight = answer(0, "NVIDIA H200\n" * 8)
    assert read_inventory(eight, 8, container=False, visible="0,1").gpus == 2
    assert read_inventory(eight, 8, container=False, visible="GPU-1a2b3c4d").gpus == 1
    assert read_inventory(eight, 8, container=False, visible="").gpus == 0
    assert read_inventory(eight, 8, container=False, visible="-1").gpus == 0
    assert read_inventory(answer(0, "NVIDIA H200\n"), 1, container=False, visible="0,1,2").gpus == 1


def test_the_bus_counts_data_center_gpus_only(tmp_path: Path) -> None:
    devices = [("0x10de", "0x030200"), ("0x10de", "0x030000"), ("0x10de", "0x068000"), ("0x1002", "0x030200")]
    for number, (vendor, kind) in enumerate(devices):
        device = tmp_path / f"0000:{number:02x}:00.0"
        device.mkdir()
        (device / "vendor").write_text(vendor + "\n")
        (device / "class").write_text(kind + "\n")
    (tmp_path / "0000:ff:00.0").mkdir()
    assert pci_gpus(tmp_path) == 1
    assert pci_gpus(tmp_path / "nowhere") == 0
