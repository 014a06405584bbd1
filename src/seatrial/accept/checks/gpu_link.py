"""The way to each GPU: its PCIe link under load, and what it carries."""

from functools import partial

from seatrial.accept import gpu_limits, nvml
from seatrial.accept.check import Check, Finding, Judgement, Request, conclude, measurement
from seatrial.accept.checks.gpu_load import Gpu, cuda_gpus, judge_fleet, judge_gpu_rate, span, timed
from seatrial.accept.facts import Facts
from seatrial.accept.gpu_kinds import kind_of
from seatrial.accept.limits import Limits
from seatrial.accept.parts import gpu_label as label
from seatrial.hardware import GB
from seatrial.records import Verdict

MIB = 2**20


class PcieGpu(Facts):
    gpu: Gpu
    maximum: nvml.PcieMaximum
    host_to_device_gb_per_s: tuple[float, ...]
    device_to_host_gb_per_s: tuple[float, ...]
    load: nvml.UnderLoad


class PcieFacts(Facts):
    gpus: tuple[PcieGpu, ...]


PCIE_BYTES = 256 * MIB


def measure_pcie(request: Request) -> PcieFacts:
    """GPUs in turn, so that they do not share the host's memory, from pinned memory."""
    import torch

    gpus = cuda_gpus()
    host = torch.empty(PCIE_BYTES, dtype=torch.uint8, pin_memory=True)
    seconds = max(request.seconds / len(gpus) / 2, 0.25)
    found = []
    for gpu in gpus:
        device = torch.empty(PCIE_BYTES, dtype=torch.uint8, device=f"cuda:{gpu.index}")
        with nvml.Watch([gpu.uuid]) as watch:
            to_device = timed(gpu.index, partial(device.copy_, host, non_blocking=True), 4, seconds)
            to_host = timed(gpu.index, partial(host.copy_, device, non_blocking=True), 4, seconds)
        found.append(
            PcieGpu(
                gpu=gpu,
                maximum=nvml.pcie_maximum(gpu.uuid),
                host_to_device_gb_per_s=tuple(PCIE_BYTES / s / GB for s in to_device),
                device_to_host_gb_per_s=tuple(PCIE_BYTES / s / GB for s in to_host),
                load=watch.seen()[gpu.uuid],
            )
        )
    return PcieFacts(gpus=tuple(found))


def judge_pcie(facts: PcieFacts, limits: Limits) -> Judgement:
    numbers = []
    findings: list[Finding] = []
    for found in facts.gpus:
        where = label(found.gpu.index, found.gpu.uuid)
        numbers.append(measurement("host to device", found.host_to_device_gb_per_s, "GB/s", where))
        numbers.append(measurement("device to host", found.device_to_host_gb_per_s, "GB/s", where))
        findings.append(_judge_link(found, where))
        link = (found.maximum.generation or 0, found.maximum.width or 0)
        for table, name, samples in (
            (gpu_limits.HOST_TO_DEVICE, "host to device", found.host_to_device_gb_per_s),
            (gpu_limits.DEVICE_TO_HOST, "device to host", found.device_to_host_gb_per_s),
        ):
            built_in = table.get(link)
            limit = limits.of(built_in) if built_in else limits.named(f"{name} over PCIe Gen{link[0]} x{link[1]}")
            findings.append(judge_gpu_rate(limit, samples, name, "GB/s", found.gpu))
    findings += judge_fleet("host to device", [(found.gpu, found.host_to_device_gb_per_s) for found in facts.gpus])
    to_device = span("host to device", "GB/s", [found.host_to_device_gb_per_s for found in facts.gpus])
    to_host = span("device to host", "GB/s", [found.device_to_host_gb_per_s for found in facts.gpus])
    return conclude(findings, numbers, when_passed=f"{to_device}; {to_host}")


def _judge_link(found: PcieGpu, where: str) -> Finding:
    """The best link seen under load, since links sleep when idle, against the best that the GPU can train."""
    generations, widths = found.load.pcie_generation, found.load.pcie_width
    best = found.maximum
    if not generations or not widths or best.generation is None or best.width is None:
        return Verdict.INCONCLUSIVE, f"{where}: the driver does not tell the PCIe link under load"
    generation, width = max(generations), max(widths)
    shown = f"{where}: PCIe Gen{generation} x{width}"
    if generation < 1 or width < 1 or best.generation < 1 or best.width < 1:
        return Verdict.INCONCLUSIVE, f"{shown} of Gen{best.generation} x{best.width} makes no sense"
    if generation >= best.generation and width >= best.width:
        return Verdict.PASS, shown
    fastest = max(found.host_to_device_gb_per_s, default=0.0)
    if generation in gpu_limits.PCIE_GT_PER_S and fastest > gpu_limits.pcie_gb_per_s(generation, width):
        return Verdict.SKIPPED, f"{shown} is what a virtual bus shows: {fastest:.1f} GB/s do not fit through it"
    verdict = Verdict.FAIL if kind_of(found.gpu.name) else Verdict.WARN
    return verdict, f"{shown} under load, but the GPU can do Gen{best.generation} x{best.width}"


CHECKS = (
    Check(
        name="gpu.pcie",
        question="Does every GPU reach the host at the full width and generation of its PCIe link?",
        remedy="reseat the GPU or its riser, set the slot to its full generation in the BIOS; on a cloud: replace it",
        facts=PcieFacts,
        measure=measure_pcie,
        judge=judge_pcie,
        limits=(*gpu_limits.HOST_TO_DEVICE.values(), *gpu_limits.DEVICE_TO_HOST.values()),
        needs_gpus=1,
        share=1.0,
    ),
)
