"""Between the GPUs of a machine: NVLinks that are up, and what every ordered pair carries."""

from functools import partial

from seatrial.accept import gpu_limits, nvml
from seatrial.accept.check import Check, Finding, Judgement, Request, conclude, measurement, percentile
from seatrial.accept.checks.gpu_load import Gpu, cuda_gpus, judge_gpu_rate, timed
from seatrial.accept.facts import Facts
from seatrial.accept.gpu_kinds import kind_of
from seatrial.accept.limits import Limits
from seatrial.accept.parts import gpu_label as label
from seatrial.hardware import GB
from seatrial.records import Measurement, Verdict

MIB = 2**20


class NvlinkGpu(Facts):
    """``active`` is None where the driver tells of no NVLink."""

    gpu: Gpu
    active: int | None


class NvlinkFacts(Facts):
    gpus: tuple[NvlinkGpu, ...]


def measure_nvlinks(request: Request) -> NvlinkFacts:
    return NvlinkFacts(gpus=tuple(NvlinkGpu(gpu=gpu, active=nvml.active_nvlinks(gpu.uuid)) for gpu in cuda_gpus()))


def judge_nvlinks(facts: NvlinkFacts, limits: Limits) -> Judgement:
    findings: list[Finding] = []
    numbers = []
    most = max((found.active or 0 for found in facts.gpus), default=0)
    for found in facts.gpus:
        where = label(found.gpu.index, found.gpu.uuid)
        kind = kind_of(found.gpu.name)
        expected = kind.nvlinks if kind and not kind.bridged else most
        if found.active is None:
            verdict = Verdict.INCONCLUSIVE if expected else Verdict.WARN
            findings.append((verdict, f"{where}: the driver tells of no NVLink"))
            continue
        numbers.append(Measurement(name="NVLinks up", value=found.active, unit="links", n=1, spread=0.0, where=where))
        if found.active < 0:
            findings.append((Verdict.INCONCLUSIVE, f"{where}: {found.active} NVLinks make no sense"))
        elif found.active < expected:
            findings.append((Verdict.FAIL, f"{where}: {found.active} of {expected} NVLinks are up"))
        else:
            findings.append((Verdict.PASS, f"{where}: {found.active} NVLinks"))
    return conclude(findings, numbers, when_passed=f"{len(facts.gpus)} GPUs with {most} NVLinks each")


class PeerPair(Facts):
    """Copies from one GPU to another; ``direct``: without a detour through the host."""

    source: Gpu
    target: Gpu
    direct: bool
    gb_per_s: tuple[float, ...]


class PeerFacts(Facts):
    pairs: tuple[PeerPair, ...]


PEER_BYTES = 256 * MIB


def measure_peers(request: Request) -> PeerFacts:
    """Every ordered pair in turn, one direction."""
    import torch

    gpus = cuda_gpus()
    buffers = {gpu.index: torch.ones(PEER_BYTES, dtype=torch.uint8, device=f"cuda:{gpu.index}") for gpu in gpus}
    seconds = request.seconds / (len(gpus) * (len(gpus) - 1) or 1)
    pairs = []
    for source in gpus:
        for target in (gpu for gpu in gpus if gpu.index != source.index):
            copy = partial(buffers[target.index].copy_, buffers[source.index], non_blocking=True)
            pairs.append(
                PeerPair(
                    source=source,
                    target=target,
                    direct=torch.cuda.can_device_access_peer(source.index, target.index),
                    gb_per_s=tuple(PEER_BYTES / s / GB for s in timed(source.index, copy, 8, seconds)),
                )
            )
    return PeerFacts(pairs=tuple(pairs))


def judge_peers(facts: PeerFacts, limits: Limits) -> Judgement:
    """Each pair by the limit of its kind; the pairs that fall short name the GPU that they share, if they share one."""
    findings: list[Finding] = []
    numbers = []
    for pair in facts.pairs:
        where = f"{label(pair.source.index, pair.source.uuid)} to GPU {pair.target.index}"
        kind = kind_of(pair.source.name)
        limit = gpu_limits.limit_for(limits, gpu_limits.PEER_COPY, "peer copy", pair.source.name)
        if kind and kind.nvlinks and not kind.bridged and not pair.direct:
            findings.append((Verdict.FAIL, f"{where}: no direct access: NVLink or fabric manager is down"))
        verdict, text = judge_gpu_rate(limit, pair.gb_per_s, "peer copy", "GB/s", pair.source)
        findings.append((verdict, f"to GPU {pair.target.index}, {text}"))
        numbers.append(measurement("peer copy", pair.gb_per_s, "GB/s", where))
    medians = [percentile(pair.gb_per_s, 50) for pair in facts.pairs]
    spread = f"{min(medians, default=0):.4g} to {max(medians, default=0):.4g} GB/s"
    return conclude(findings, numbers, when_passed=f"{len(facts.pairs)} ordered pairs: {spread}")


CHECKS = (
    Check(
        name="fabric.nvlink",
        question="Are all NVLinks of every GPU up?",
        remedy="look at nvidia-smi nvlink --status and the fabric manager's log; reseat or replace the named GPU",
        facts=NvlinkFacts,
        measure=measure_nvlinks,
        judge=judge_nvlinks,
        needs_gpus=2,
    ),
    Check(
        name="fabric.peer",
        question="Does every pair of GPUs exchange data at the rate of its links?",
        remedy="look at nvidia-smi topo -m and nvlink --errorcounters; a GPU in all slow pairs is the culprit",
        facts=PeerFacts,
        measure=measure_peers,
        judge=judge_peers,
        limits=tuple(gpu_limits.PEER_COPY.values()),
        needs_gpus=2,
        share=1.0,
    ),
)
