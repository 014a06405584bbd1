"""GPU memory at work: copy bandwidth, and whether it returns what was written."""

from functools import partial

from seatrial.accept import gpu_limits
from seatrial.accept.check import Check, Finding, Judgement, Request, conclude, measurement
from seatrial.accept.checks.gpu_load import Gpu, cuda_gpus, judge_fleet, judge_gpu_rate, span, timed
from seatrial.accept.digest import ODD_MULTIPLIER
from seatrial.accept.facts import Facts
from seatrial.accept.limits import Limits
from seatrial.accept.parts import gpu_label as label
from seatrial.hardware import GB, GIB
from seatrial.records import Measurement, Verdict

MIB = 2**20


class CopyGpu(Facts):
    gpu: Gpu
    gb_per_s: tuple[float, ...]


class CopyFacts(Facts):
    gpus: tuple[CopyGpu, ...]


def measure_copy(request: Request) -> CopyFacts:
    """Copies within each GPU's memory, bytes read plus bytes written, from 2 GiB buffers, far beyond any cache."""
    import torch

    gpus = cuda_gpus()
    found = []
    for gpu in gpus:
        free_bytes, _ = torch.cuda.mem_get_info(gpu.index)
        size = min(2 * GIB, free_bytes // 4)
        source, target = (torch.empty(size, dtype=torch.uint8, device=f"cuda:{gpu.index}").fill_(v) for v in (1, 2))
        durations = timed(gpu.index, partial(target.copy_, source), 8, request.seconds / len(gpus))
        found.append(CopyGpu(gpu=gpu, gb_per_s=tuple(2 * size / s / GB for s in durations)))
        del source, target
        torch.cuda.empty_cache()
    return CopyFacts(gpus=tuple(found))


def judge_copy(facts: CopyFacts, limits: Limits) -> Judgement:
    findings: list[Finding] = []
    numbers = []
    for found in facts.gpus:
        limit = gpu_limits.limit_for(limits, gpu_limits.MEMORY_COPY, "memory copy", found.gpu.name)
        findings.append(judge_gpu_rate(limit, found.gb_per_s, "memory copy", "GB/s", found.gpu))
        numbers.append(measurement("memory copy", found.gb_per_s, "GB/s", label(found.gpu.index, found.gpu.uuid)))
    findings += judge_fleet("memory copy", [(found.gpu, found.gb_per_s) for found in facts.gpus])
    summary = span("memory copy", "GB/s", [found.gb_per_s for found in facts.gpus])
    return conclude(findings, numbers, when_passed=summary)


class PatternGpu(Facts):
    """``wrong``: 8-byte words that did not read back, over all patterns."""

    gpu: Gpu
    tested_gib: float
    free_gib: float
    wrong: int


class PatternFacts(Facts):
    gpus: tuple[PatternGpu, ...]


PATTERNS = (0x5555555555555555, -0x5555555555555556)
"""Alternating bits and their complement (0xAAAA...), so that every cell is written as 0 and as 1."""
TESTED_SHARE = 0.9


def measure_patterns(request: Request) -> PatternFacts:
    import torch

    found = []
    for gpu in cuda_gpus():
        torch.cuda.empty_cache()
        free_bytes, _ = torch.cuda.mem_get_info(gpu.index)
        tested_bytes, wrong = wrong_words(f"cuda:{gpu.index}", int(free_bytes * TESTED_SHARE))
        torch.cuda.empty_cache()
        found.append(PatternGpu(gpu=gpu, tested_gib=tested_bytes / GIB, free_gib=free_bytes / GIB, wrong=wrong))
    return PatternFacts(gpus=tuple(found))


def wrong_words(device: str, room_bytes: int, block_bytes: int = 256 * MIB) -> tuple[int, int]:
    """Bytes tested within ``room_bytes``, and 8-byte words that did not read back.

    All of the memory is written before any is read; the last pattern differs at every address, so that two addresses
    that reach the same cell are found.
    """
    import torch

    words = block_bytes // 8
    position = torch.arange(words, device=device) * ODD_MULTIPLIER
    # Of the room, the positions take a block, and comparing takes up to two more.
    count = room_bytes // block_bytes - 3
    blocks = [torch.empty(words, dtype=torch.int64, device=device) for _ in range(count)]
    wrong = 0
    for pattern in PATTERNS:
        for block in blocks:
            block.fill_(pattern)
        wrong += sum(int(torch.ne(block, pattern).sum()) for block in blocks)
    for number, block in enumerate(blocks):
        torch.add(position, number, out=block)
    wrong += sum(int(torch.ne(block.sub_(number), position).sum()) for number, block in enumerate(blocks))
    return len(blocks) * block_bytes, wrong


def judge_patterns(facts: PatternFacts, limits: Limits) -> Judgement:
    findings: list[Finding] = []
    numbers = []
    for found in facts.gpus:
        where = label(found.gpu.index, found.gpu.uuid)
        tested = f"{found.tested_gib:.1f} GiB with {len(PATTERNS) + 1} patterns"
        if not 0 < found.tested_gib <= found.free_gib or found.wrong < 0:
            findings.append((Verdict.INCONCLUSIVE, f"{where}: {tested} of {found.free_gib:.1f} GiB makes no sense"))
        elif found.wrong:
            findings.append((Verdict.FAIL, f"{where}: {found.wrong} words of {tested} did not read back"))
        else:
            findings.append((Verdict.PASS, f"{where}: {tested}"))
        numbers.append(
            Measurement(name="memory tested", value=found.tested_gib, unit="GiB", n=1, spread=0.0, where=where)
        )
    total = sum(found.tested_gib for found in facts.gpus)
    summary = f"{len(facts.gpus)} GPU(s): {total:.0f} GiB read back as written, {len(PATTERNS) + 1} patterns"
    return conclude(findings, numbers, when_passed=summary)


CHECKS = (
    Check(
        name="gpu.memory_bandwidth",
        question="Does every GPU's memory deliver its bandwidth?",
        remedy="check the memory clock (nvidia-smi -q -d CLOCK); a board that stays slow is to be replaced",
        facts=CopyFacts,
        measure=measure_copy,
        judge=judge_copy,
        limits=tuple(gpu_limits.MEMORY_COPY.values()),
        needs_gpus=1,
        share=1.0,
    ),
    Check(
        name="gpu.memory_patterns",
        question="Does GPU memory return what was written to it?",
        remedy="take the GPU out of use and have it replaced: it corrupts data",
        facts=PatternFacts,
        measure=measure_patterns,
        judge=judge_patterns,
        needs_gpus=1,
    ),
)
