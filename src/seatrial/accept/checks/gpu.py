"""GPUs as the driver and the kernel describe them: count, health counters, who else is on them, logged errors."""

import os
import re
from collections import Counter
from pathlib import Path

from seatrial.accept import nvml
from seatrial.accept.check import Check, Finding, Judgement, Request, conclude
from seatrial.accept.facts import Facts
from seatrial.accept.gpu_kinds import kind_of
from seatrial.accept.limits import Limits
from seatrial.accept.parts import gpu_label as label
from seatrial.records import Measurement, Verdict


class InventoryFacts(Facts):
    """``state`` is None, and ``driver_error`` says why, when the driver does not answer. ``expected``: what the user,
    the driver's list or the PCI bus counts. ``visible``: CUDA_VISIBLE_DEVICES where it is set."""

    state: nvml.DriverState | None
    driver_error: str
    expected: int
    torch_gpus: int
    torch_version: str
    visible: str | None


def measure_inventory(request: Request) -> InventoryFacts:
    import pynvml
    import torch

    state, driver_error = None, ""
    try:
        state = nvml.read_driver()
    except pynvml.NVMLError as error:
        driver_error = str(error)
    return InventoryFacts(
        state=state,
        driver_error=driver_error,
        expected=request.expected_gpus,
        torch_gpus=torch.cuda.device_count(),
        torch_version=torch.__version__,
        visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
    )


def judge_inventory(facts: InventoryFacts, limits: Limits) -> Judgement:
    if facts.state is None:
        return conclude([(Verdict.FAIL, f"{facts.expected} GPU(s) expected, no driver answers: {facts.driver_error}")])
    found, names = len(facts.state.gpus), Counter(gpu.name for gpu in facts.state.gpus)
    findings: list[Finding] = [
        (Verdict.FAIL, f"GPU {index} does not answer the driver: {said}") for index, said in facts.state.silent.items()
    ]
    if found < facts.expected:
        findings.append((Verdict.FAIL, f"{found} of {facts.expected} GPUs answer the driver"))
    if facts.torch_gpus < found:
        seen = f"PyTorch {facts.torch_version} sees {facts.torch_gpus} of {found} GPUs"
        if facts.torch_gpus and facts.visible is not None:
            findings.append((Verdict.WARN, f"{seen}, by CUDA_VISIBLE_DEVICES={facts.visible}: the others go untested"))
        else:
            findings.append((Verdict.FAIL, f"{seen}: a CPU build, or a driver that is too old for it"))
    if len(names) > 1:
        findings.append((Verdict.WARN, f"GPUs of different kinds: {', '.join(sorted(names))}"))
    findings += [
        (Verdict.WARN, f"{label(gpu.index, gpu.uuid)} is split by MIG: its rates are those of a part")
        for gpu in facts.state.gpus
        if gpu.mig
    ]
    if found:
        shown = ", ".join(f"{count} x {name}" for name, count in names.items())
        findings.append((Verdict.PASS, f"{shown}, driver {facts.state.driver}"))
    return conclude(findings, [Measurement(name="GPUs", value=found, unit="GPUs", n=1, spread=0.0, where="driver")])


class StateFacts(Facts):
    state: nvml.DriverState


def measure_state(request: Request) -> StateFacts:
    return StateFacts(state=nvml.read_driver())


LEAKED_GIB = 1.0
"""Memory in use, beyond what the driver keeps for itself, at which somebody must be on the GPU: an idle CUDA context
holds about half of it."""


def judge_idle(facts: StateFacts, limits: Limits) -> Judgement:
    """A GPU that others use cannot be judged: what follows would measure them."""
    findings: list[Finding] = []
    numbers = []
    for gpu in facts.state.gpus:
        where = label(gpu.index, gpu.uuid)
        if gpu.processes is None and gpu.used_gib is None:
            findings.append((Verdict.INCONCLUSIVE, f"{where}: the driver tells neither processes nor memory in use"))
        elif gpu.processes:
            findings.append((Verdict.INCONCLUSIVE, f"{where}: {gpu.processes} process(es) already compute on it"))
        elif gpu.used_gib is not None and not 0 <= gpu.used_gib < LEAKED_GIB:
            findings.append((Verdict.INCONCLUSIVE, f"{where}: {gpu.used_gib:.1f} GiB in use and no process shown"))
        else:
            findings.append((Verdict.PASS, f"{where} is idle"))
        if gpu.used_gib is not None:
            numbers.append(
                Measurement(name="memory in use", value=gpu.used_gib, unit="GiB", n=1, spread=0.0, where=where)
            )
    return conclude(findings, numbers, when_passed=f"{len(facts.state.gpus)} GPU(s) idle")


def judge_memory_health(facts: StateFacts, limits: Limits) -> Judgement:
    """Row remapping as in NVIDIA's GPU memory error management guide: pending wants a reset, failed a new board."""
    summary = f"{len(facts.state.gpus)} GPU(s): no uncorrected error, no row waits to be remapped"
    return conclude((found for gpu in facts.state.gpus for found in _memory_health(gpu)), when_passed=summary)


def _memory_health(gpu: nvml.GpuState) -> list[Finding]:
    where = label(gpu.index, gpu.uuid)
    findings: list[Finding] = []
    known = kind_of(gpu.name) is not None
    if gpu.ecc is None:
        verdict = Verdict.INCONCLUSIVE if known else Verdict.WARN
        return [(verdict, f"{where}: the driver does not say whether memory errors are corrected")]
    if not gpu.ecc:
        return [(Verdict.FAIL if known else Verdict.WARN, f"{where}: ECC is off, so memory errors pass unseen")]
    if gpu.uncorrected_since_boot is None:
        findings.append((Verdict.INCONCLUSIVE, f"{where}: the driver does not count uncorrected memory errors"))
    elif gpu.uncorrected_since_boot:
        count = gpu.uncorrected_since_boot
        findings.append((Verdict.FAIL, f"{where}: {count} uncorrected memory errors since the driver started"))
    elif gpu.uncorrected_ever:
        findings.append((Verdict.WARN, f"{where}: {gpu.uncorrected_ever} uncorrected memory errors in its life"))
    if gpu.row_remap_failed:
        findings.append((Verdict.FAIL, f"{where}: a memory row could not be remapped: the board must be replaced"))
    if gpu.row_remap_pending:
        findings.append((Verdict.FAIL, f"{where}: a row remapping waits for a reset of the GPU"))
    if gpu.row_remap_failed is None or gpu.row_remap_pending is None:
        verdict = Verdict.INCONCLUSIVE if known else Verdict.SKIPPED
        findings.append((verdict, f"{where}: the driver does not tell of remapped rows"))
    if gpu.rows_remapped_uncorrected:
        findings.append((Verdict.WARN, f"{where}: {gpu.rows_remapped_uncorrected} rows remapped after lost data"))
    return findings or [(Verdict.PASS, f"{where}: no uncorrected error, no row waits to be remapped")]


FATAL_XIDS = {
    48: "double-bit memory error",
    62: "internal micro-controller halt",
    63: "row remapping recorded",
    64: "row remapping failed to be recorded",
    74: "NVLink error",
    79: "fell off the bus",
    92: "high rate of single-bit errors",
    94: "contained memory error",
    95: "uncontained memory error",
    110: "security fault",
    119: "GSP does not answer",
    120: "GSP error",
    121: "chip-to-chip link error",
    140: "unrecovered memory error",
    143: "GPU initialization error",
    **dict.fromkeys(range(144, 151), "NVLink error"),
    154: "recovery action needed",
}
"""By NVIDIA's XID catalogue; programs cause the others too (13, 31, 43, 45)."""


class KernelLogFacts(Facts):
    """``xids``: (PCI address, XID) in the order of the log; None when this process may not read the log."""

    xids: tuple[tuple[str, int], ...] | None
    reason: str


def find_xids(log: str) -> tuple[tuple[str, int], ...]:
    """XIDs in a kernel log: ``NVRM: Xid (PCI:0000:3b:00): 79, ...``."""
    return tuple((bus, int(xid)) for bus, xid in re.findall(r"NVRM: Xid \(PCI:([0-9a-fA-F:.]+)\): (\d+)", log))


def measure_kernel_log(request: Request) -> KernelLogFacts:
    try:
        log = _read_kernel_log(Path("/dev/kmsg"))
    except OSError as error:
        return KernelLogFacts(xids=None, reason=f"{error.filename or '/dev/kmsg'}: {error.strerror}")
    return KernelLogFacts(xids=find_xids(log), reason="")


def _read_kernel_log(path: Path) -> str:
    """Each read gives one record; EAGAIN ends the log, EPIPE tells of records that were overwritten meanwhile."""
    records: list[bytes] = []
    device = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        while True:
            try:
                record = os.read(device, 8192)
            except BrokenPipeError:
                continue
            except BlockingIOError:
                break
            if not record:
                break
            records.append(record)
    finally:
        os.close(device)
    return b"".join(records).decode(errors="replace")


def judge_kernel_log(facts: KernelLogFacts, limits: Limits) -> Judgement:
    """Where the log belongs to somebody else, as in most containers, the question is for them: SKIPPED."""
    if facts.xids is None:
        return Judgement(Verdict.SKIPPED, f"the kernel log is the host's: {facts.reason}; run on the host as root")
    findings: list[Finding] = [
        (Verdict.FAIL, f"PCI {bus}: XID {xid}, {FATAL_XIDS[xid]}, {count} time(s)")
        for (bus, xid), count in Counter(facts.xids).items()
        if xid in FATAL_XIDS
    ]
    mild = sorted({xid for _, xid in facts.xids if xid not in FATAL_XIDS})
    if mild:
        findings.append((Verdict.WARN, f"XIDs that programs can cause: {', '.join(map(str, mild))}"))
    return conclude(findings or [(Verdict.PASS, "no XID in the kernel log")])


BEFORE_LOAD = (
    Check(
        name="gpu.inventory",
        question="Is every GPU there, and does PyTorch see it?",
        remedy="reset or reboot the node; a GPU that stays away has fallen off the bus: open a ticket with its address",
        facts=InventoryFacts,
        measure=measure_inventory,
        judge=judge_inventory,
        needs_gpus=1,
    ),
    Check(
        name="gpu.idle",
        question="Are the GPUs free of other programs?",
        remedy="end the programs that nvidia-smi shows, or drain the node, and test again",
        facts=StateFacts,
        measure=measure_state,
        judge=judge_idle,
        needs_gpus=1,
    ),
)
AFTER_LOAD = (
    Check(
        name="gpu.memory_health",
        question="Is GPU memory free of uncorrected errors, after the load above?",
        remedy="reset the GPU when a remapping waits; replace the board when errors stay or a remapping failed",
        facts=StateFacts,
        measure=measure_state,
        judge=judge_memory_health,
        needs_gpus=1,
    ),
    Check(
        name="gpu.kernel_log",
        question="Has the driver logged errors of the hardware?",
        remedy="look the XID up in NVIDIA's catalogue; hardware ones go into a ticket with the PCI address",
        facts=KernelLogFacts,
        measure=measure_kernel_log,
        judge=judge_kernel_log,
        needs_gpus=1,
    ),
)
