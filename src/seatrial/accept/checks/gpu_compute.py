"""What GPUs compute: sustained matrix rates, exact products, and the same bits on every GPU of a kind."""

import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from seatrial.accept import gpu_limits, nvml
from seatrial.accept.check import MIN_SAMPLES, Check, Finding, Judgement, Request, conclude, measurement
from seatrial.accept.checks.gpu_load import Gpu, cuda_gpus, finish, judge_fleet, judge_gpu_rate, span
from seatrial.accept.digest import Tally, digest, digests_compared, judge_same_bits
from seatrial.accept.facts import Facts
from seatrial.accept.limits import Limits
from seatrial.accept.parts import gpu_label as label
from seatrial.records import Measurement, Verdict

if TYPE_CHECKING:
    import torch


GEMM_SIZE = 8192
"""1.1e12 FLOP a product: long enough that launches do not show, and 132 SMs have work for many waves."""
EXACT_SIZE = 4096
BATCH = 32
"""Products between two readings of the clock: 50 ms on an H100."""
LEAST_LOAD_SECONDS = 1.5
"""The rate swings by a fifth for seconds before the power limit holds it (results/accept_h100_2026-11-21.md): a shorter
look could take one swing for a fault."""


class GemmGpu(Facts):
    """``wrong``: elements of an integer product that differ from the exact one."""

    gpu: Gpu
    tflop_per_s: tuple[float, ...]
    wrong: int
    load: nvml.UnderLoad


class GpuGemmFacts(Facts):
    """``unsupported``: why the GPUs have no such products, empty when they have."""

    dtype: str
    unsupported: str
    gpus: tuple[GemmGpu, ...]


def measure_bf16_gemm(request: Request) -> GpuGemmFacts:
    return _measure_gemm("bf16", request)


def measure_fp8_gemm(request: Request) -> GpuGemmFacts:
    import torch

    gpus = cuda_gpus()
    if any(torch.cuda.get_device_capability(gpu.index) < (8, 9) for gpu in gpus):
        return GpuGemmFacts(dtype="fp8", unsupported="GPUs before compute capability 8.9 have no fp8", gpus=())
    return _measure_gemm("fp8", request)


def _measure_gemm(dtype: str, request: Request) -> GpuGemmFacts:
    """All GPUs at once, as in training: they share power and cooling."""
    gpus = cuda_gpus()
    load_seconds = max(request.seconds, LEAST_LOAD_SECONDS)
    wrong = [_wrong_elements(dtype, gpu.index) for gpu in gpus]
    with nvml.Watch([gpu.uuid for gpu in gpus], interval_seconds=max(0.05, load_seconds / 200)) as watch:
        seconds = _load_all([_product(dtype, gpu.index, GEMM_SIZE) for gpu in gpus], gpus, load_seconds)
    seen = watch.seen()
    flop = 2 * GEMM_SIZE**3
    return GpuGemmFacts(
        dtype=dtype,
        unsupported="",
        gpus=tuple(
            GemmGpu(
                gpu=gpu,
                tflop_per_s=tuple(flop / s / 1e12 for s in seconds[gpu.index]),
                wrong=wrong[gpu.index],
                load=seen[gpu.uuid],
            )
            for gpu in gpus
        ),
    )


def _product(dtype: str, device: int, size: int) -> "Callable[[], torch.Tensor]":
    """A product of normal random matrices: the bits toggle, and so the power is drawn, as in training."""
    import torch

    generator = torch.Generator(f"cuda:{device}").manual_seed(7)
    a, b = (torch.randn(size, size, device=f"cuda:{device}", generator=generator) for _ in range(2))
    return multiplier(dtype, a, b)


def multiplier(dtype: str, a: "torch.Tensor", b: "torch.Tensor") -> "Callable[[], torch.Tensor]":
    """A function that computes ``a @ b.T`` in ``dtype`` with a bf16 result."""
    import torch

    if dtype == "bf16":
        a16, b16 = a.bfloat16(), b.bfloat16().t()
        return lambda: a16 @ b16
    a8, b8 = a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn).t()
    one = torch.ones((), device=a.device)
    return lambda: torch._scaled_mm(a8, b8, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)


def _wrong_elements(dtype: str, device: int) -> int:
    """Products of -1, 0 and 1 have sums that every accumulator holds exactly, so the result must equal fp64's.

    The largest sums are a few hundred, where bf16 still rounds: the exact result is rounded the same way.
    """
    import torch

    generator = torch.Generator(f"cuda:{device}").manual_seed(11)
    a, b = (
        torch.randint(-1, 2, (EXACT_SIZE, EXACT_SIZE), device=f"cuda:{device}", generator=generator).float()
        for _ in range(2)
    )
    exact = (a.double() @ b.double().t()).bfloat16()
    with torch.cuda.device(device):
        return int(torch.ne(multiplier(dtype, a, b)(), exact).sum())


def _load_all(
    products: "list[Callable[[], torch.Tensor]]", gpus: Sequence[Gpu], seconds: float
) -> dict[int, list[float]]:
    """Seconds of one product by GPU, all GPUs working at once, two batches queued on each.

    The first tenth of the time is not counted: clocks rise and then fall to what power and heat allow.
    """
    import torch

    durations: dict[int, list[float]] = {gpu.index: [] for gpu in gpus}
    queued: deque[dict[int, tuple[torch.cuda.Event, torch.cuda.Event]]] = deque()
    begin = time.perf_counter()
    counted = 0
    while counted < MIN_SAMPLES or time.perf_counter() - begin < seconds:
        marks = {}
        for gpu, product in zip(gpus, products, strict=True):
            with torch.cuda.device(gpu.index):
                start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                for _ in range(BATCH):
                    product()
                stop.record()
                marks[gpu.index] = (start, stop)
        queued.append(marks)
        if len(queued) > 1:
            finished = {index: finish(pair) / BATCH for index, pair in queued.popleft().items()}
            if time.perf_counter() - begin >= seconds / 10:
                counted += 1
                for index, value in finished.items():
                    durations[index].append(value)
    for gpu in gpus:
        torch.cuda.synchronize(gpu.index)
    return durations


def judge_gpu_gemm(facts: GpuGemmFacts, limits: Limits) -> Judgement:
    if facts.unsupported:
        return Judgement(Verdict.SKIPPED, facts.unsupported)
    findings: list[Finding] = []
    numbers: list[Measurement] = []
    table = {"bf16": gpu_limits.BF16_GEMM, "fp8": gpu_limits.FP8_GEMM}.get(facts.dtype, {})
    for found in facts.gpus:
        where = label(found.gpu.index, found.gpu.uuid)
        limit = gpu_limits.limit_for(limits, table, f"{facts.dtype} GEMM", found.gpu.name)
        findings.append(judge_gpu_rate(limit, found.tflop_per_s, f"{facts.dtype} GEMM", "TFLOP/s", found.gpu))
        if found.wrong:
            verdict = Verdict.FAIL if found.wrong > 0 else Verdict.INCONCLUSIVE
            findings.append((verdict, f"{where}: {found.wrong} elements of an exact integer product are wrong"))
        findings += judge_load(found.load, where)
        numbers.append(measurement(f"{facts.dtype} GEMM", found.tflop_per_s, "TFLOP/s", where))
        if found.load.sm_clock_mhz:
            numbers.append(measurement("SM clock under load", found.load.sm_clock_mhz, "MHz", where))
            numbers.append(measurement("power under load", found.load.power_w, "W", where))
            numbers.append(measurement("temperature under load", found.load.temperature_c, "deg C", where))
    findings += judge_fleet(f"{facts.dtype} GEMM", [(found.gpu, found.tflop_per_s) for found in facts.gpus])
    summary = span(f"{facts.dtype} GEMM", "TFLOP/s", [found.tflop_per_s for found in facts.gpus])
    return conclude(findings, numbers, when_passed=f"{summary}, products exact, no slowdown")


SLOWDOWNS = {
    0x08: ("hardware slowdown", Verdict.FAIL),
    0x40: ("hardware thermal slowdown", Verdict.FAIL),
    0x80: ("power brake", Verdict.FAIL),
    0x20: ("software thermal slowdown", Verdict.WARN),
}
"""Bits of NVML's clocks-event reasons. The software power cap (0x04) is normal at full load on an H100 and no fault."""
MOMENTARY_SHARE = 0.05
"""Of the samples: a slowdown bit seen less often than that is a blip, worth a WARN."""


def judge_load(load: nvml.UnderLoad, where: str) -> list[Finding]:
    """Whether heat, power or an error held the GPU back while it worked."""
    if not load.clock_reasons:
        return [(Verdict.INCONCLUSIVE, f"{where}: the driver does not tell what limits the clock")]
    findings: list[Finding] = []
    for bit, (name, verdict) in SLOWDOWNS.items():
        hit = sum(bool(reasons & bit) for reasons in load.clock_reasons)
        if hit:
            total = len(load.clock_reasons)
            judged = verdict if hit > MOMENTARY_SHARE * total else Verdict.WARN
            findings.append((judged, f"{where}: {name} in {hit} of {total} samples under load"))
    if load.xids:
        findings.append((Verdict.FAIL, f"{where}: XIDs {sorted(set(load.xids))} under load"))
    return findings


class GpuDigestFacts(Facts):
    """By GPU index, how often the same seeded work gave each digest."""

    gpus: tuple[Gpu, ...]
    tallies: dict[int, Tally]


DIGEST_SIZE = 4096


def measure_gpu_digests(request: Request) -> GpuDigestFacts:
    gpus = cuda_gpus()
    inputs = {gpu.index: seeded_inputs(f"cuda:{gpu.index}", DIGEST_SIZE) for gpu in gpus}
    tallies: dict[int, Counter[int]] = {gpu.index: Counter() for gpu in gpus}
    end = time.perf_counter() + request.seconds
    while tallies[gpus[0].index].total() < MIN_SAMPLES or time.perf_counter() < end:
        for index, tally in tallies.items():
            tally[seeded_work(*inputs[index])] += 1
    return GpuDigestFacts(gpus=tuple(gpus), tallies={index: dict(tally) for index, tally in tallies.items()})


def seeded_inputs(device: str, size: int) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
    """Two random matrices and a permutation, drawn on the host, because a faulty GPU would draw its own."""
    import torch

    generator = torch.Generator().manual_seed(20)
    a, b = (torch.randn(size, size, generator=generator).to(device) for _ in range(2))
    return a, b, torch.randperm(size, generator=generator).to(device)


def seeded_work(a: "torch.Tensor", b: "torch.Tensor", order: "torch.Tensor") -> int:
    """Digest of products, attention, softmax, reduction and gather: one stream, no atomics, so that healthy GPUs of
    one kind with one library agree in every bit."""
    import torch
    import torch.nn.functional as F

    size = len(a)
    product = a.bfloat16() @ b.bfloat16() * size**-0.5
    heads = product.view(1, size // 64, size, 64)[:, :8, :1024]
    attended = F.scaled_dot_product_attention(heads, heads, heads, is_causal=True)
    parts = (product, a @ b, attended, torch.softmax(product.float(), dim=-1), product.float().sum(dim=0), b[order])
    return digest(torch.tensor([digest(part) for part in parts]))


def judge_gpu_digests(facts: GpuDigestFacts, limits: Limits) -> Judgement:
    """The vote is among GPUs of one kind: another kind may round otherwise in good health."""
    findings: list[Finding] = []
    if not facts.gpus or {gpu.index for gpu in facts.gpus} != set(facts.tallies):
        return conclude([(Verdict.INCONCLUSIVE, "not every GPU gave digests")])
    for name in sorted({gpu.name for gpu in facts.gpus}):
        same = {gpu.index: facts.tallies[gpu.index] for gpu in facts.gpus if gpu.name == name}
        findings += judge_same_bits(same, "GPU")
    return conclude(findings, [digests_compared(facts.tallies)])


CHECKS = (
    Check(
        name="gpu.gemm_bf16",
        question="Does every GPU sustain the bf16 matrix rate of its kind, not held back by heat or power?",
        remedy="check cooling, power limit and clocks (nvidia-smi -q -d PERFORMANCE); wrong elements: replace the GPU",
        facts=GpuGemmFacts,
        measure=measure_bf16_gemm,
        judge=judge_gpu_gemm,
        limits=tuple(gpu_limits.BF16_GEMM.values()),
        needs_gpus=1,
        share=4.0,
    ),
    Check(
        name="gpu.gemm_fp8",
        question="Does every GPU sustain the fp8 matrix rate of its kind, not held back by heat or power?",
        remedy="check cooling, power limit and clocks (nvidia-smi -q -d PERFORMANCE); wrong elements: replace the GPU",
        facts=GpuGemmFacts,
        measure=measure_fp8_gemm,
        judge=judge_gpu_gemm,
        limits=tuple(gpu_limits.FP8_GEMM.values()),
        needs_gpus=1,
        share=2.0,
    ),
    Check(
        name="gpu.same_bits",
        question="Do GPUs of one kind compute the same bits, every time?",
        remedy="take the named GPU out of use and have it replaced: it corrupts data silently",
        facts=GpuDigestFacts,
        measure=measure_gpu_digests,
        judge=judge_gpu_digests,
        needs_gpus=1,
        share=2.0,
    ),
)
