"""What the NVIDIA driver says of its GPUs, at rest and while they work. The only module that speaks to NVML."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Self

from seatrial.accept.facts import Facts
from seatrial.hardware import GIB

Handle = Any
"""An opaque pointer of NVML."""


class GpuState(Facts):
    """One GPU at rest. None stands for what the driver does not tell."""

    index: int
    name: str
    uuid: str
    serial: str | None
    bus_id: str
    mig: bool | None
    ecc: bool | None
    uncorrected_since_boot: int | None
    uncorrected_ever: int | None
    corrected_ever: int | None
    rows_remapped_corrected: int | None
    rows_remapped_uncorrected: int | None
    row_remap_pending: bool | None
    row_remap_failed: bool | None
    processes: int | None
    used_gib: float | None
    temperature_c: int | None
    power_limit_w: float | None


class DriverState(Facts):
    """``silent``: what the driver said of GPUs that it counts but cannot read, by index."""

    driver: str
    gpus: tuple[GpuState, ...]
    silent: dict[int, str]


class UnderLoad(Facts):
    """Samples of one GPU at work; a series that the driver withholds is empty, and its ``xids`` are None."""

    sm_clock_mhz: tuple[int, ...]
    power_w: tuple[float, ...]
    temperature_c: tuple[int, ...]
    clock_reasons: tuple[int, ...]
    pcie_generation: tuple[int, ...]
    pcie_width: tuple[int, ...]
    xids: tuple[int, ...] | None


@contextlib.contextmanager
def session() -> Iterator[None]:
    """Raises: pynvml.NVMLError: there is no driver to speak to."""
    import pynvml

    pynvml.nvmlInit()
    try:
        yield
    finally:
        pynvml.nvmlShutdown()


def ask(function: Callable[..., Any], *arguments: Any) -> Any:
    """The driver's answer, None where this GPU, driver or permission has none."""
    import pynvml

    try:
        return function(*arguments)
    except pynvml.NVMLError:
        return None


def read_driver() -> DriverState:
    import pynvml

    gpus: list[GpuState] = []
    silent: dict[int, str] = {}
    with session():
        for index in range(pynvml.nvmlDeviceGetCount()):
            try:
                gpus.append(_read_gpu(index, pynvml.nvmlDeviceGetHandleByIndex(index)))
            except pynvml.NVMLError as error:
                silent[index] = str(error)
        return DriverState(driver=pynvml.nvmlSystemGetDriverVersion(), gpus=tuple(gpus), silent=silent)


def _read_gpu(index: int, handle: Handle) -> GpuState:
    import pynvml as nv

    ecc, mig = ask(nv.nvmlDeviceGetEccMode, handle), ask(nv.nvmlDeviceGetMigMode, handle)
    rows = ask(nv.nvmlDeviceGetRemappedRows, handle) or (None,) * 4
    processes = ask(nv.nvmlDeviceGetComputeRunningProcesses, handle)
    # Version 2 leaves out what the driver keeps for itself, which is no sign of a leaked process.
    memory = ask(nv.nvmlDeviceGetMemoryInfo, handle, getattr(nv, "nvmlMemory_v2", None))
    limit_mw = ask(nv.nvmlDeviceGetEnforcedPowerLimit, handle)
    bus_id = nv.nvmlDeviceGetPciInfo(handle).busId

    def errors(kind: int, counter: int) -> int | None:
        count: int | None = ask(nv.nvmlDeviceGetTotalEccErrors, handle, kind, counter)
        return count

    return GpuState(
        index=index,
        name=nv.nvmlDeviceGetName(handle),
        uuid=nv.nvmlDeviceGetUUID(handle),
        serial=ask(nv.nvmlDeviceGetSerial, handle),
        bus_id=bus_id.decode() if isinstance(bus_id, bytes) else bus_id,
        mig=None if mig is None else bool(mig[0]),
        ecc=None if ecc is None else bool(ecc[0]),
        uncorrected_since_boot=errors(nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nv.NVML_VOLATILE_ECC),
        uncorrected_ever=errors(nv.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nv.NVML_AGGREGATE_ECC),
        corrected_ever=errors(nv.NVML_MEMORY_ERROR_TYPE_CORRECTED, nv.NVML_AGGREGATE_ECC),
        rows_remapped_corrected=rows[0],
        rows_remapped_uncorrected=rows[1],
        row_remap_pending=None if rows[2] is None else bool(rows[2]),
        row_remap_failed=None if rows[3] is None else bool(rows[3]),
        processes=None if processes is None else len(processes),
        used_gib=None if memory is None else memory.used / GIB,
        temperature_c=ask(nv.nvmlDeviceGetTemperature, handle, nv.NVML_TEMPERATURE_GPU),
        power_limit_w=None if limit_mw is None else limit_mw / 1000,
    )


class PcieMaximum(Facts):
    """What the GPU itself can do, whatever it is plugged into."""

    generation: int | None
    width: int | None


def pcie_maximum(uuid: str) -> PcieMaximum:
    import pynvml as nv

    with session():
        handle = nv.nvmlDeviceGetHandleByUUID(uuid)
        own = getattr(nv, "nvmlDeviceGetGpuMaxPcieLinkGeneration", nv.nvmlDeviceGetMaxPcieLinkGeneration)
        return PcieMaximum(generation=ask(own, handle), width=ask(nv.nvmlDeviceGetMaxPcieLinkWidth, handle))


def active_nvlinks(uuid: str) -> int | None:
    """NVLinks that are up; None where the driver tells of none."""
    import pynvml as nv

    with session():
        handle = nv.nvmlDeviceGetHandleByUUID(uuid)
        states = [ask(nv.nvmlDeviceGetNvLinkState, handle, link) for link in range(nv.NVML_NVLINK_MAX_LINKS)]
    told = [state for state in states if state is not None]
    return sum(map(bool, told)) if told else None


class Watch:
    """Samples GPUs from a thread while the body of the ``with`` runs.

    Raises: pynvml.NVMLError: on entry, when there is no driver to speak to.
    """

    def __init__(self, uuids: Sequence[str], interval_seconds: float = 0.05) -> None:
        self._uuids = uuids
        self._interval_seconds = interval_seconds
        self._samples: dict[str, dict[str, list[float]]] = {uuid: {} for uuid in uuids}
        self._xids: dict[str, list[int]] = {}
        self._stack = contextlib.ExitStack()
        self._done = threading.Event()

    def __enter__(self) -> Self:
        import pynvml as nv

        self._stack.enter_context(session())
        handles = {uuid: nv.nvmlDeviceGetHandleByUUID(uuid) for uuid in self._uuids}
        self._readers = _readers()
        self._events = self._register(handles)
        self._thread = threading.Thread(target=self._sample, args=(handles,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()
        self._collect()
        self._stack.close()

    def seen(self) -> dict[str, UnderLoad]:
        """By UUID, once the body has run."""
        return {
            uuid: UnderLoad.model_validate(
                {name: samples.get(name, ()) for name in self._readers}
                | {"xids": None if uuid not in self._xids else tuple(self._xids[uuid])}
            )
            for uuid, samples in self._samples.items()
        }

    def _sample(self, handles: dict[str, Handle]) -> None:
        while not self._done.is_set():
            for uuid, handle in handles.items():
                for name, read in self._readers.items():
                    value = read(handle)
                    if value is not None:
                        self._samples[uuid].setdefault(name, []).append(value)
            self._done.wait(self._interval_seconds)

    def _register(self, handles: dict[str, Handle]) -> Handle:
        """An event set that catches XIDs of the GPUs whose driver offers them."""
        import pynvml as nv

        events = ask(nv.nvmlEventSetCreate)
        if events is None:
            return None
        for uuid, handle in handles.items():
            with contextlib.suppress(nv.NVMLError):
                nv.nvmlDeviceRegisterEvents(handle, nv.nvmlEventTypeXidCriticalError, events)
                self._xids[uuid] = []
        return events

    def _collect(self) -> None:
        import pynvml as nv

        if self._events is None:
            return
        while self._xids and (event := ask(nv.nvmlEventSetWait_v2, self._events, 0)) is not None:
            self._xids[ask(nv.nvmlDeviceGetUUID, event.device)].append(event.eventData)
        ask(nv.nvmlEventSetFree, self._events)


def _readers() -> dict[str, Callable[[Handle], float | None]]:
    """How each series of ``UnderLoad`` is read."""
    import pynvml as nv

    def power_w(handle: Handle) -> float | None:
        milliwatts: int | None = ask(nv.nvmlDeviceGetPowerUsage, handle)
        return None if milliwatts is None else milliwatts / 1000

    # The older name of the same answer serves older drivers' bindings.
    reasons = getattr(nv, "nvmlDeviceGetCurrentClocksEventReasons", nv.nvmlDeviceGetCurrentClocksThrottleReasons)
    return {
        "sm_clock_mhz": lambda handle: ask(nv.nvmlDeviceGetClockInfo, handle, nv.NVML_CLOCK_SM),
        "power_w": power_w,
        "temperature_c": lambda handle: ask(nv.nvmlDeviceGetTemperature, handle, nv.NVML_TEMPERATURE_GPU),
        "clock_reasons": lambda handle: ask(reasons, handle),
        "pcie_generation": lambda handle: ask(nv.nvmlDeviceGetCurrPcieLinkGeneration, handle),
        "pcie_width": lambda handle: ask(nv.nvmlDeviceGetCurrPcieLinkWidth, handle),
    }
