"""Collectives over the ranks of this machine: exact results, bus bandwidth as nccl-tests defines it, and its tail."""

import platform

from seatrial.accept import cpu_limits, gpu_limits
from seatrial.accept.check import (
    MIN_SAMPLES,
    Check,
    Finding,
    Judgement,
    Request,
    conclude,
    judge_rate,
    measurement,
    percentile,
)
from seatrial.accept.checks.gpu_load import cuda_gpus
from seatrial.accept.checks.ranks import Backend, Collective, NcclChoice, Step, StepFacts, busbw_gb_per_s, run_on_ranks
from seatrial.accept.facts import Facts
from seatrial.accept.limits import Limits
from seatrial.records import Measurement, Verdict

KIB, MIB, GIB = 2**10, 2**20, 2**30
OTHERS: tuple[Collective, ...] = ("all_gather", "reduce_scatter", "all_to_all", "broadcast")
LOOPBACK_STEPS: tuple[Step, ...] = (
    *((collective, MIB) for collective in OTHERS),
    *(("all_reduce", size) for size in (8, 4 * KIB, MIB, 16 * MIB)),
)
NCCL_STEPS: tuple[Step, ...] = (
    *(("all_reduce", size) for size in (8, 64 * KIB, MIB, 16 * MIB, 256 * MIB, GIB, 4 * GIB)),
    *((collective, size) for collective in OTHERS for size in (MIB, GIB)),
)


class RanksFacts(Facts):
    """``gpu_names``: of the GPUs that the ranks sat on, empty for ranks on the processor."""

    backend: Backend
    ranks: int
    gpu_names: tuple[str, ...]
    steps: tuple[StepFacts, ...]
    choice: NcclChoice


def measure_loopback(request: Request) -> RanksFacts:
    steps, choice = run_on_ranks("gloo", 2, LOOPBACK_STEPS, request.seconds)
    return RanksFacts(backend="gloo", ranks=2, gpu_names=(), steps=steps, choice=choice)


def measure_nccl(request: Request) -> RanksFacts:
    gpus = cuda_gpus()
    steps, choice = run_on_ranks("nccl", len(gpus), NCCL_STEPS, request.seconds)
    names = tuple(gpu.name for gpu in gpus)
    return RanksFacts(backend="nccl", ranks=len(gpus), gpu_names=names, steps=steps, choice=choice)


def judge_loopback(facts: RanksFacts, limits: Limits) -> Judgement:
    findings = judge_results(facts)
    if facts.steps and facts.ranks > 1:
        findings.append(
            judge_rate(limits.of(cpu_limits.LOOPBACK_BUSBW), _busbw(facts, facts.steps[-1]), platform.node())
        )
    return conclude(findings, step_measurements(facts))


def judge_results(facts: RanksFacts) -> list[Finding]:
    """Every result must be exact, at every size."""
    if facts.ranks < 2 or not facts.steps:
        return [(Verdict.INCONCLUSIVE, f"{len(facts.steps)} collectives over {facts.ranks} rank(s) answer nothing")]
    findings: list[Finding] = []
    for step in facts.steps:
        name = f"{step.collective} of {step.size_bytes} B"
        if len(step.seconds) < MIN_SAMPLES or not all(0 < s < float("inf") for s in step.seconds) or step.wrong < 0:
            findings.append((Verdict.INCONCLUSIVE, f"{name} was not timed"))
        elif step.wrong:
            findings.append((Verdict.FAIL, f"{name}: {step.wrong} elements are wrong"))
    return findings or [(Verdict.PASS, f"results exact over {facts.ranks} {facts.backend} ranks")]


def judge_nccl(facts: RanksFacts, limits: Limits) -> Judgement:
    """The floor of an all-reduce depends on the algorithm that NCCL chose, so its log is read before judging."""
    findings = judge_results(facts)
    kinds = {gpu_limits.kind_of(name) for name in facts.gpu_names}
    kind = kinds.pop() if len(kinds) == 1 else None
    detours = [transport for transport in facts.choice.transports if transport != "P2P"]
    if kind and detours:
        findings.append((Verdict.FAIL, f"NCCL went by {' and '.join(detours)} between GPUs that NVLink connects"))
    large = [s for s in facts.steps if s.collective == "all_reduce" and s.size_bytes >= gpu_limits.LARGE_MESSAGE_BYTES]
    if not large or facts.ranks < 2:
        findings.append((Verdict.INCONCLUSIVE, "no all-reduce was large enough to be judged"))
        return conclude(findings, step_measurements(facts))
    step = large[-1]
    algorithm = facts.choice.algorithms.get(f"AllReduce {step.size_bytes}")
    rates = _busbw(facts, step)
    built_in = gpu_limits.ALL_REDUCE.get((kind, facts.ranks, algorithm)) if kind and algorithm else None
    names = " and ".join(sorted(set(facts.gpu_names)))
    own = limits.named(f"all-reduce busbw by {algorithm}, {facts.ranks} x {names}")
    limit = limits.of(built_in) if built_in else own
    shown = f"all-reduce busbw {percentile(rates, 50):.4g} GB/s by {algorithm or 'an algorithm NCCL did not tell'}"
    if limit is None:
        findings.append((Verdict.WARN, f"{shown} (recorded, not judged: no floor for {facts.ranks} x {names})"))
    else:
        findings.append(judge_rate(limit, rates, f"{facts.ranks} GPUs, {algorithm}"))
    return conclude(findings, step_measurements(facts))


def step_measurements(facts: RanksFacts) -> list[Measurement]:
    """Bus bandwidth, median time and p99 time of each step; p99 is the largest of fewer than 100 repeats."""
    numbers = []
    where = f"{platform.node()}, {facts.ranks} {facts.backend} ranks"
    for step in facts.steps:
        label = f"{step.collective} {step.size_bytes} B"
        numbers.append(measurement(f"{label} busbw", _busbw(facts, step), "GB/s", where))
        numbers.append(measurement(f"{label} time", step.seconds, "s", where))
        p99, n = percentile(step.seconds, 99), len(step.seconds)
        numbers.append(Measurement(name=f"{label} p99 time", value=p99, unit="s", n=n, spread=0.0, where=where))
    return numbers


def _busbw(facts: RanksFacts, step: StepFacts) -> list[float]:
    return [busbw_gb_per_s(step.collective, step.size_bytes, s, facts.ranks) for s in step.seconds if s > 0]


CHECKS = (
    Check(
        name="collectives.loopback",
        question="Do two processes on this machine exchange and add up data exactly, through its own network stack?",
        remedy="check that the loopback interface is up and that no firewall or sandbox stands in its way",
        facts=RanksFacts,
        measure=measure_loopback,
        judge=judge_loopback,
        limits=(cpu_limits.LOOPBACK_BUSBW,),
        share=2.0,
    ),
    Check(
        name="collectives.nccl",
        question="Do the GPUs of this machine exchange and add up data exactly, at the rate of their links?",
        remedy="see facts.jsonl for NCCL's transport and algorithm; compare fabric.peer to find the GPU or link",
        facts=RanksFacts,
        measure=measure_nccl,
        judge=judge_nccl,
        limits=tuple(gpu_limits.ALL_REDUCE.values()),
        needs_gpus=2,
        share=4.0,
    ),
)
