"""Collectives over the ranks of this machine: exact results, bus bandwidth as nccl-tests defines it, and its tail."""

from collections.abc import Sequence

from seatrial.accept import cpu_limits
from seatrial.accept.busbw import (
    LARGE_MESSAGE_BYTES,
    Collective,
    Layout,
    built_in_limits,
    busbw_gb_per_s,
    expected_busbw,
    shown_bytes,
)
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
from seatrial.accept.checks.ranks import Backend, Step, StepFacts, run_on_ranks
from seatrial.accept.facts import Facts
from seatrial.accept.gpu_kinds import KINDS, GpuKind, kind_of
from seatrial.accept.limits import Limit, Limits
from seatrial.accept.nccl_log import NcclChoice, judge_transport
from seatrial.hardware import node_name
from seatrial.records import Measurement, Verdict

KIB, MIB, GIB = 2**10, 2**20, 2**30
OTHERS: tuple[Collective, ...] = ("all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv")
LOOPBACK_STEPS: tuple[Step, ...] = (
    *((collective, MIB) for collective in OTHERS),
    *(("all_reduce", size) for size in (8, 4 * KIB, MIB, 16 * MIB)),
)
SMALL_SIZES = (8, 4 * KIB, 64 * KIB, MIB, 16 * MIB)
LARGE_SIZES = (128 * MIB, GIB, 4 * GIB, 16 * GIB)
LONG_SECONDS = 8.0
"""From so many seconds on there is time for 16 GiB, and for every size of every collective."""


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


def nccl_steps(free_bytes: int, seconds: float) -> tuple[Step, ...]:
    """From 8 B to 16 GiB, as far as three buffers fit the memory of the fullest GPU; all-reduce last and whole."""
    sizes = [size for size in (*SMALL_SIZES, *LARGE_SIZES) if 3 * size <= free_bytes]
    long = seconds >= LONG_SECONDS
    if not long:
        sizes = [size for size in sizes if size <= LARGE_MESSAGE_BYTES]
    others = sizes if long else [size for size in sizes if size in (MIB, GIB, LARGE_MESSAGE_BYTES)]
    return (*((name, size) for name in OTHERS for size in others), *(("all_reduce", size) for size in sizes))


def measure_nccl(request: Request) -> RanksFacts:
    import torch

    gpus = cuda_gpus()
    free_bytes = min(torch.cuda.mem_get_info(gpu.index)[0] for gpu in gpus)
    steps, choice = run_on_ranks("nccl", len(gpus), nccl_steps(free_bytes, request.seconds), request.seconds)
    names = tuple(gpu.name for gpu in gpus)
    return RanksFacts(backend="nccl", ranks=len(gpus), gpu_names=names, steps=steps, choice=choice)


def judge_loopback(facts: RanksFacts, limits: Limits) -> Judgement:
    findings = judge_results(facts)
    if facts.steps and facts.ranks > 1:
        findings.append(judge_rate(limits.of(cpu_limits.LOOPBACK_BUSBW), _busbw(facts, facts.steps[-1]), node_name()))
    return conclude(findings, step_measurements(facts))


def judge_results(facts: RanksFacts) -> list[Finding]:
    """Every result must be exact, at every size."""
    if facts.ranks < 2 or not facts.steps:
        return [(Verdict.INCONCLUSIVE, f"{len(facts.steps)} collectives over {facts.ranks} rank(s) answer nothing")]
    findings: list[Finding] = []
    for step in facts.steps:
        name = f"{step.collective} of {shown_bytes(step.size_bytes)}"
        if len(step.seconds) < MIN_SAMPLES or not all(0 < s < float("inf") for s in step.seconds) or step.wrong < 0:
            findings.append((Verdict.INCONCLUSIVE, f"{name} was not timed"))
        elif step.wrong:
            findings.append((Verdict.FAIL, f"{name}: {step.wrong} elements are wrong"))
    return findings or [(Verdict.PASS, f"results exact over {facts.ranks} {facts.backend} ranks")]


def judge_nccl(facts: RanksFacts, limits: Limits) -> Judgement:
    """What a collective should do depends on how NCCL does it, so its log is read before anything is judged."""
    findings = judge_results(facts)
    kinds = {kind_of(name) for name in facts.gpu_names}
    kind = kinds.pop() if len(kinds) == 1 else None
    linked = kind is not None and kind.nvlinks > 0 and not kind.bridged
    findings += judge_transport(facts.choice, nodes=1, linked=linked, rdma_ports=0)
    if facts.ranks > 1:
        findings += largest_of_each([(step, judge_step(facts, step, kind, limits)) for step in facts.steps])
    if not any(step.collective == "all_reduce" and step.size_bytes >= LARGE_MESSAGE_BYTES for step in facts.steps):
        findings.append((Verdict.INCONCLUSIVE, "no all-reduce was large enough to be judged"))
    return conclude(findings, step_measurements(facts), when_passed=summary(facts))


def largest_of_each(judged: Sequence[tuple[StepFacts, Finding]]) -> list[Finding]:
    """Of each collective and verdict the finding on the largest message, and how many others there are like it."""
    alike: dict[tuple[Collective, Verdict], list[tuple[int, str]]] = {}
    for step, (verdict, text) in judged:
        if verdict is not Verdict.SKIPPED:
            alike.setdefault((step.collective, verdict), []).append((step.size_bytes, text))
    found = []
    for (_, verdict), texts in alike.items():
        others = f" (and {len(texts) - 1} smaller)" if len(texts) > 1 else ""
        found.append((verdict, max(texts)[1] + others))
    return found


def judge_step(
    facts: RanksFacts,
    step: StepFacts,
    kind: GpuKind | None,
    limits: Limits,
    *,
    nodes: int = 1,
    nic_gb_per_s: float = 0.0,
) -> Finding:
    """One collective of one size, by the model or by the user's own limit for large messages.

    ``nic_gb_per_s``: of a GPU's share of its node's network ports, where there are several nodes.
    """
    algorithm = facts.choice.algorithm(step.collective, step.size_bytes, facts.ranks)
    rates = _busbw(facts, step)
    limit = _limit_of(facts, step, algorithm, kind, limits, nodes, nic_gb_per_s)
    if limit is not None:
        return judge_rate(limit, rates, f"{facts.ranks} GPUs, {algorithm}")
    by = algorithm or "an algorithm NCCL did not tell"
    names = " and ".join(sorted(set(facts.gpu_names)))
    shown = f"{step.collective} of {shown_bytes(step.size_bytes)}: busbw {percentile(rates, 50):.4g} GB/s by {by}"
    if step.size_bytes < LARGE_MESSAGE_BYTES:
        return Verdict.SKIPPED, f"{shown} (recorded, not judged)"
    return Verdict.WARN, f"{shown} (recorded, not judged: no model for {facts.ranks} x {names})"


def _limit_of(
    facts: RanksFacts,
    step: StepFacts,
    algorithm: str | None,
    kind: GpuKind | None,
    limits: Limits,
    nodes: int,
    nic_gb_per_s: float,
) -> Limit | None:
    names = kind.name if kind else " and ".join(sorted(set(facts.gpu_names)))
    if step.size_bytes >= LARGE_MESSAGE_BYTES:
        plain = step.collective.replace("_", "-")
        own = limits.named(f"{plain} busbw by {algorithm}, {facts.ranks} x {names}")
        if own:
            return own
    if kind is None or algorithm is None:
        return None
    linked = not kind.bridged or "P2P" in facts.choice.transports
    layout = Layout(kind=kind, ranks=facts.ranks, nodes=nodes, nic_gb_per_s=nic_gb_per_s, linked=linked)
    return expected_busbw(layout, step.collective, algorithm, step.size_bytes)


def summary(facts: RanksFacts) -> str:
    """One line for a healthy machine: the rate of the largest message of each collective."""
    largest = {step.collective: step for step in sorted(facts.steps, key=lambda step: step.size_bytes)}
    rates = [f"{name} {percentile(_busbw(facts, step), 50):.4g}" for name, step in largest.items()]
    exact = f"results exact over {facts.ranks} ranks"
    return f"{exact}; busbw of the largest messages in GB/s: {', '.join(rates)}"


def step_measurements(facts: RanksFacts) -> list[Measurement]:
    """Bus bandwidth, median time and p99 time of each step; p99 is the largest of fewer than 100 samples."""
    numbers = []
    where = f"{node_name()}, {facts.ranks} {facts.backend} ranks"
    for step in facts.steps:
        label = f"{step.collective} {shown_bytes(step.size_bytes)}"
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
        limits=built_in_limits(KINDS),
        needs_gpus=2,
        share=4.0,
    ),
)
