"""The processor at work: memory bandwidth, matrix products, and whether every core computes the same bits."""

import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.accept import cpu_limits
from seatrial.accept.check import MIN_SAMPLES, Check, Finding, Judgement, Request, conclude, judge_rate, measurement
from seatrial.accept.digest import Tally, digest, digests_compared, judge_same_bits
from seatrial.accept.facts import Facts
from seatrial.accept.limits import Limit, Limits
from seatrial.hardware import GB, node_name, usable_cpus
from seatrial.records import Verdict

if TYPE_CHECKING:
    import torch

MIB = 2**20
CACHE_MULTIPLE = 4
"""STREAM's rule: each array at least four times the last-level caches together."""


def sample(action: Callable[[], object], seconds: float) -> list[float]:
    """Durations in seconds of ``action``, after one warm-up, until ``seconds`` have passed and there are enough."""
    action()
    durations: list[float] = []
    end = time.perf_counter() + seconds
    while len(durations) < MIN_SAMPLES or time.perf_counter() < end:
        start = time.perf_counter()
        action()
        durations.append(time.perf_counter() - start)
    return durations


BUSY_SHARE = 0.2
"""Of all cores. When other programs took more meanwhile, a low rate says nothing about the machine."""


class OtherLoad:
    """Share of this machine's cores that other programs used since this was made."""

    def __init__(self) -> None:
        self._start = self._now()

    @staticmethod
    def _now() -> tuple[float, float]:
        own = os.times()
        return time.monotonic(), busy_cpu_seconds(Path("/proc/stat").read_text()) - own.user - own.system

    def share(self) -> float:
        (start, busy_before), (end, busy_after) = self._start, self._now()
        return max(0.0, (busy_after - busy_before) / ((end - start) * (os.cpu_count() or 1)))


def busy_cpu_seconds(stat: str) -> float:
    """Seconds that all cores together have worked, by the first line of ``/proc/stat`` (proc(5)): user, nice, system,
    irq, softirq and steal; the kernel counts guests under user already."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = (int(field) for field in stat.split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def judge_cpu_rate(limit: Limit, samples: tuple[float, ...], where: str, cores: int, others_share: float) -> Finding:
    """A rate per core; what falls short on a busy machine is INCONCLUSIVE."""
    verdict, text = judge_rate(limit, samples, where, per=cores)
    if verdict in (Verdict.FAIL, Verdict.WARN) and not others_share <= BUSY_SHARE:
        return Verdict.INCONCLUSIVE, f"{text}, but other programs used {others_share:.0%} of the cores meanwhile"
    return verdict, text


class MemoryBandwidthFacts(Facts):
    """GB/s in STREAM's counting: bytes read plus bytes written, none for write-allocation."""

    cores: int
    others_share: float
    array_bytes: int
    cache_bytes: int
    copy_gb_per_s: tuple[float, ...]
    triad_gb_per_s: tuple[float, ...]


def last_level_cache_bytes(cpus: Path = Path("/sys/devices/system/cpu")) -> int:
    """Sum over the distinct caches of the highest level; 0 where the kernel does not show them."""
    caches: dict[tuple[int, str], int] = {}
    for index in cpus.glob("cpu[0-9]*/cache/index[0-9]*"):
        try:
            level = int((index / "level").read_text())
            shared_by = (index / "shared_cpu_list").read_text().strip()
            caches[level, shared_by] = int((index / "size").read_text().strip().removesuffix("K")) * 1024
        except (OSError, ValueError):
            continue
    highest = max((level for level, _ in caches), default=0)
    return sum(size for (level, _), size in caches.items() if level == highest)


def measure_memory_bandwidth(request: Request) -> MemoryBandwidthFacts:
    import torch

    torch.set_num_threads(usable_cpus())
    cache_bytes = last_level_cache_bytes()
    free_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
    array_bytes = min(max(CACHE_MULTIPLE * cache_bytes, 64 * MIB), free_bytes // 6)
    a, b, c = (torch.full((array_bytes // 4,), float(value)) for value in (1, 2, 3))
    others = OtherLoad()
    copy_s = sample(lambda: a.copy_(b), request.seconds / 2)
    triad_s = sample(lambda: torch.add(b, c, alpha=3.0, out=a), request.seconds / 2)
    return MemoryBandwidthFacts(
        cores=usable_cpus(),
        others_share=others.share(),
        array_bytes=array_bytes,
        cache_bytes=cache_bytes,
        copy_gb_per_s=tuple(2 * array_bytes / seconds / GB for seconds in copy_s),
        triad_gb_per_s=tuple(3 * array_bytes / seconds / GB for seconds in triad_s),
    )


def judge_memory_bandwidth(facts: MemoryBandwidthFacts, limits: Limits) -> Judgement:
    where = node_name()
    numbers = [
        measurement("memory copy", facts.copy_gb_per_s, "GB/s", where),
        measurement("memory triad", facts.triad_gb_per_s, "GB/s", where),
    ]
    if facts.cores < 1 or facts.array_bytes < max(CACHE_MULTIPLE * facts.cache_bytes, MIB):
        sizes = f"arrays of {facts.array_bytes / MIB:.0f} MiB, caches of {facts.cache_bytes / MIB:.0f} MiB"
        return conclude([(Verdict.INCONCLUSIVE, f"{sizes}: the caches were measured, not the memory")], numbers)
    rates = {"copy": facts.copy_gb_per_s, "triad": facts.triad_gb_per_s}
    findings = [
        judge_cpu_rate(limits.of(cpu_limits.MEMORY_BANDWIDTH_PER_CORE), rate, kind, facts.cores, facts.others_share)
        for kind, rate in rates.items()
    ]
    return conclude(findings, numbers)


GEMM_SIZE = 2048
"""Three fp32 matrices of 16 MiB: beyond any second-level cache, and still under 0.1 s on two cores."""


class GemmFacts(Facts):
    """``wrong``: elements of an integer-valued product that differ from the exact one. bf16 is None where the
    processor has no bf16 instructions."""

    cores: int
    others_share: float
    isa: str | None
    fp32_gflop_per_s: tuple[float, ...]
    fp32_wrong: int
    bf16_gflop_per_s: tuple[float, ...] | None
    bf16_wrong: int | None


def cpu_flags(cpuinfo: str) -> frozenset[str]:
    """Instruction-set flags of the first processor in ``/proc/cpuinfo`` (``flags`` on x86, ``Features`` on Arm)."""
    for line in cpuinfo.splitlines():
        if line.startswith(("flags", "Features")):
            return frozenset(line.partition(":")[2].split())
    return frozenset()


def measure_gemm(request: Request) -> GemmFacts:
    import torch

    torch.set_num_threads(usable_cpus())
    flags = cpu_flags(Path("/proc/cpuinfo").read_text())
    has_bf16 = bool(flags & {"avx512_bf16", "amx_bf16", "bf16"})
    seconds = request.seconds / (2 if has_bf16 else 1)
    others = OtherLoad()
    fp32, fp32_wrong = _gemm(torch.float32, seconds)
    bf16, bf16_wrong = _gemm(torch.bfloat16, seconds) if has_bf16 else (None, None)
    return GemmFacts(
        cores=usable_cpus(),
        others_share=others.share(),
        isa=next((isa for isa in cpu_limits.GEMM_PER_CORE if isa in flags), None),
        fp32_gflop_per_s=fp32,
        fp32_wrong=fp32_wrong,
        bf16_gflop_per_s=bf16,
        bf16_wrong=bf16_wrong,
    )


def _gemm(dtype: "torch.dtype", seconds: float) -> tuple[tuple[float, ...], int]:
    """GFLOP/s of square products, and how many elements of an exactly representable product are wrong.

    Integers from -8 to 8 keep every partial sum below 2048 x 64 < 2^24, so fp32 accumulation is exact in any order
    and the result must equal the rounded fp64 product, which other instructions compute.
    """
    import torch

    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randint(-8, 9, (GEMM_SIZE, GEMM_SIZE), generator=generator) for _ in range(2))
    exact = (a.double() @ b.double()).to(dtype)
    a, b = a.to(dtype), b.to(dtype)
    wrong = int(torch.ne(a @ b, exact).sum())
    out = torch.empty_like(exact)
    durations = sample(lambda: torch.matmul(a, b, out=out), seconds)
    return tuple(2 * GEMM_SIZE**3 / duration / GB for duration in durations), wrong


def judge_gemm(facts: GemmFacts, limits: Limits) -> Judgement:
    where = node_name()
    numbers = [measurement("fp32 GEMM", facts.fp32_gflop_per_s, "GFLOP/s", where)]
    findings: list[Finding] = [_exact("fp32", facts.fp32_wrong)]
    limit = cpu_limits.GEMM_PER_CORE.get(facts.isa or "")
    if limit is None or facts.cores < 1:
        findings.append((Verdict.INCONCLUSIVE, "the processor's instruction set is unknown, so there is no floor"))
    else:
        findings.append(
            judge_cpu_rate(limits.of(limit), facts.fp32_gflop_per_s, where, facts.cores, facts.others_share)
        )
    if facts.bf16_gflop_per_s is None or facts.bf16_wrong is None:
        findings.append((Verdict.SKIPPED, "bf16 not measured: the processor has no bf16 instructions"))
    else:
        numbers.append(measurement("bf16 GEMM", facts.bf16_gflop_per_s, "GFLOP/s", where))
        findings.append(_exact("bf16", facts.bf16_wrong))
        findings.append((Verdict.SKIPPED, "bf16 rate recorded, not judged"))
    return conclude(findings, numbers)


def _exact(dtype: str, wrong: int) -> Finding:
    if wrong < 0:
        return Verdict.INCONCLUSIVE, f"{dtype}: {wrong} wrong elements make no sense"
    if wrong:
        return Verdict.FAIL, f"{dtype}: {wrong} of {GEMM_SIZE**2} elements of an exact integer product are wrong"
    return Verdict.PASS, f"{dtype} product exact"


class DigestFacts(Facts):
    """By core, how often the same seeded work gave each digest."""

    tallies: dict[int, Tally]


def measure_digests(request: Request) -> DigestFacts:
    """The same seeded work on each core in turn, one thread, so that a core that errs is known by its number."""
    import torch

    torch.set_num_threads(1)
    home = os.sched_getaffinity(0)
    tallies: dict[int, Counter[int]] = {core: Counter() for core in sorted(home)}
    end = time.perf_counter() + request.seconds
    try:
        while tallies[min(home)].total() < MIN_SAMPLES or time.perf_counter() < end:
            for core, tally in tallies.items():
                os.sched_setaffinity(0, {core})
                tally[_seeded_work()] += 1
    finally:
        os.sched_setaffinity(0, home)
    return DigestFacts(tallies={core: dict(tally) for core, tally in tallies.items()})


def _seeded_work() -> int:
    """Digest of a matrix product, a softmax, a reduction and a gather over random numbers of a fixed seed."""
    import torch

    generator = torch.Generator().manual_seed(20)
    a, b = (torch.randn(256, 256, generator=generator) for _ in range(2))
    order = torch.randperm(256, generator=generator)
    product = a @ b
    parts = (product, torch.softmax(product, dim=-1), product.sum(dim=0), product[order])
    return digest(torch.cat([part.flatten() for part in parts]))


def judge_digests(facts: DigestFacts, limits: Limits) -> Judgement:
    return conclude(judge_same_bits(facts.tallies, "core"), [digests_compared(facts.tallies)])


CHECKS = (
    Check(
        name="host.memory_bandwidth",
        question="Does the memory deliver a fair share of bandwidth to every core?",
        remedy="look for a busy neighbour, an empty memory channel (dmidecode -t memory) or a CPU quota",
        facts=MemoryBandwidthFacts,
        measure=measure_memory_bandwidth,
        judge=judge_memory_bandwidth,
        limits=(cpu_limits.MEMORY_BANDWIDTH_PER_CORE,),
        share=2.0,
    ),
    Check(
        name="host.gemm",
        question="Do the cores multiply matrices at a plausible rate, and correctly?",
        remedy="look for a busy neighbour, a power-saving governor or thermal throttling; wrong bits: replace the CPU",
        facts=GemmFacts,
        measure=measure_gemm,
        judge=judge_gemm,
        limits=tuple(cpu_limits.GEMM_PER_CORE.values()),
        share=2.0,
    ),
    Check(
        name="host.same_bits",
        question="Does every core compute the same bits, every time?",
        remedy="take the named core out of use (isolcpus) and have the CPU replaced: it corrupts data silently",
        facts=DigestFacts,
        measure=measure_digests,
        judge=judge_digests,
        share=1.0,
    ),
)
