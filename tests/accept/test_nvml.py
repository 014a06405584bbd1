"""The driver's answers, recorded and played back through NVML's own functions, with those that some drivers lack."""

import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from seatrial.accept import nvml
from seatrial.accept.checks.gpu import StateFacts, judge_memory_health
from seatrial.accept.limits import Limits

UUIDS = ("GPU-5f3c1a52-0000-0000-0000-000000000001", "GPU-5f3c1a52-0000-0000-0000-000000000002")


class RecordedDriver:
    """Answers by name of the NVML function; an exception among them is raised. Two GPUs, known by number."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: dict[str, Any] = {
            "nvmlInit": None,
            "nvmlShutdown": None,
            "nvmlSystemGetDriverVersion": "580.159.04",
            "nvmlDeviceGetCount": 2,
            "nvmlDeviceGetName": "NVIDIA H100 80GB HBM3",
            "nvmlDeviceGetSerial": "1650024011111",
            "nvmlDeviceGetPciInfo": SimpleNamespace(busId=b"00000000:3B:00.0"),
            "nvmlDeviceGetMigMode": [0, 0],
            "nvmlDeviceGetEccMode": [1, 1],
            "nvmlDeviceGetRemappedRows": (0, 0, 0, 0),
            "nvmlDeviceGetComputeRunningProcesses": [],
            "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=2**20),
            "nvmlDeviceGetEnforcedPowerLimit": 700000,
            "nvmlDeviceGetTotalEccErrors": 0,
            "nvmlDeviceGetTemperature": 41,
            "nvmlDeviceGetClockInfo": 1980,
            "nvmlDeviceGetPowerUsage": 698500,
            "nvmlDeviceGetCurrentClocksEventReasons": 4,
            "nvmlDeviceGetCurrPcieLinkGeneration": 5,
            "nvmlDeviceGetCurrPcieLinkWidth": 16,
            "nvmlDeviceGetGpuMaxPcieLinkGeneration": 5,
            "nvmlDeviceGetMaxPcieLinkWidth": 16,
            "nvmlEventSetCreate": "events",
            "nvmlEventSetFree": None,
            "nvmlDeviceRegisterEvents": None,
            "nvmlEventSetWait_v2": pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT),
        }
        monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda index: index)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", UUIDS.index)
        monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda handle: UUIDS[handle])
        monkeypatch.setattr(pynvml, "nvmlDeviceGetNvLinkState", self.link)
        for name in self.answers:
            monkeypatch.setattr(pynvml, name, self.play(name))
        self.links: Any = [1] * 18

    def play(self, name: str) -> Callable[..., Any]:
        def function(*_: Any) -> Any:
            answer = self.answers[name]
            answer = answer.pop(0) if name == "nvmlEventSetWait_v2" and isinstance(answer, list) else answer
            if isinstance(answer, Exception):
                raise answer
            return answer

        return function

    def link(self, _: int, number: int) -> int:
        if number >= len(self.links):
            raise pynvml.NVMLError(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return int(self.links[number])


UNSUPPORTED = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> RecordedDriver:
    return RecordedDriver(monkeypatch)


def test_the_state_of_every_gpu_is_read(driver: RecordedDriver) -> None:
    state = nvml.read_driver()
    assert state.driver == "580.159.04" and state.silent == {}
    assert [gpu.uuid for gpu in state.gpus] == list(UUIDS)
    first = state.gpus[0]
    assert (first.bus_id, first.ecc, first.mig, first.processes) == ("00000000:3B:00.0", True, False, 0)
    assert (first.used_gib, first.power_limit_w) == (2**-10, 700.0)
    assert (first.row_remap_pending, first.row_remap_failed) == (False, False)


def test_what_a_driver_does_not_tell_is_none_and_not_zero(driver: RecordedDriver) -> None:
    for name in ("EccMode", "RemappedRows", "TotalEccErrors", "ComputeRunningProcesses", "MemoryInfo", "Serial"):
        driver.answers[f"nvmlDeviceGet{name}"] = UNSUPPORTED
    gpu = nvml.read_driver().gpus[0]
    untold = (gpu.ecc, gpu.row_remap_failed, gpu.uncorrected_since_boot, gpu.processes, gpu.used_gib, gpu.serial)
    assert untold == (None,) * 6


def test_remapped_rows_and_errors_reach_the_verdict(driver: RecordedDriver) -> None:
    driver.answers["nvmlDeviceGetRemappedRows"] = (1, 2, 1, 0)
    judgement = judge_memory_health(StateFacts(state=nvml.read_driver()), Limits())
    assert "GPU 1 (GPU-5f3c1a52): a row remapping waits for a reset" in judgement.reason


def test_a_lost_gpu_is_silent_and_named(driver: RecordedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    def handle(index: int) -> int:
        if index == 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return index

    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", handle)
    state = nvml.read_driver()
    assert len(state.gpus) == 1 and list(state.silent) == [1]


def test_a_machine_without_a_driver_cannot_be_read(driver: RecordedDriver) -> None:
    driver.answers["nvmlInit"] = pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
    with pytest.raises(pynvml.NVMLError), nvml.Watch(UUIDS):
        pass


def test_load_is_sampled_and_errors_meanwhile_are_caught(driver: RecordedDriver) -> None:
    timeout = driver.answers["nvmlEventSetWait_v2"]
    driver.answers["nvmlEventSetWait_v2"] = [SimpleNamespace(device=1, eventData=79), timeout]
    with nvml.Watch(UUIDS, interval_seconds=0.01) as watch:
        time.sleep(0.2)
    seen = watch.seen()
    assert len(seen[UUIDS[0]].sm_clock_mhz) >= 3
    assert set(seen[UUIDS[0]].power_w) == {698.5}
    assert set(seen[UUIDS[0]].clock_reasons) == {4}
    assert (seen[UUIDS[0]].xids, seen[UUIDS[1]].xids) == ((), (79,))


def test_one_untold_series_does_not_take_the_others_away(driver: RecordedDriver) -> None:
    driver.answers["nvmlDeviceGetCurrPcieLinkWidth"] = UNSUPPORTED
    driver.answers["nvmlEventSetCreate"] = UNSUPPORTED
    with nvml.Watch(UUIDS[:1], interval_seconds=0.01) as watch:
        time.sleep(0.1)
    seen = watch.seen()[UUIDS[0]]
    assert seen.pcie_width == () and seen.xids is None and len(seen.clock_reasons) >= 3


def test_links(driver: RecordedDriver) -> None:
    assert nvml.pcie_maximum(UUIDS[0]) == nvml.PcieMaximum(generation=5, width=16)
    assert nvml.active_nvlinks(UUIDS[0]) == 18
    driver.links = [1] * 17 + [0]
    assert nvml.active_nvlinks(UUIDS[0]) == 17
    driver.links = []
    assert nvml.active_nvlinks(UUIDS[0]) is None
