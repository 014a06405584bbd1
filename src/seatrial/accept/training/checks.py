"""The questions of this group and the pure judge of the rate; that of the bits stands with the replay."""

from collections.abc import Mapping, Sequence

from seatrial.accept.check import MIN_SAMPLES, Check, Finding, Judgement, conclude, judge_rate, measurement, percentile
from seatrial.accept.checks.gpu_load import Gpu, judge_fleet
from seatrial.accept.fleet import LEAST_EFFECT
from seatrial.accept.gpu_kinds import kind_of
from seatrial.accept.limits import Limit, Limits
from seatrial.accept.parts import gpu_label
from seatrial.accept.training import limits as known
from seatrial.accept.training.rate import RateFacts, RateRank, Workload, measure_rate
from seatrial.accept.training.replay import ReplayFacts, judge_replay, measure_replay
from seatrial.acceptance import STEP_MFU, STEP_RATE
from seatrial.hardware import node_name
from seatrial.records import Measurement, Verdict


def judge_step_rate(facts: RateFacts, limits: Limits) -> Judgement:
    """Each GPU alone by the limit of its kind and beside its neighbours, then what is lost together."""
    ranks = list(enumerate(facts.ranks))
    findings: list[Finding] = [
        (Verdict.INCONCLUSIVE, f"{name_of(number, rank)} could not train: {rank.error}")
        for number, rank in ranks
        if rank.error
    ]
    sound = [(number, rank) for number, rank in ranks if not rank.error]
    if not sound:
        return conclude(findings or [(Verdict.INCONCLUSIVE, "no rank trained")])
    numbers: list[Measurement] = []
    for number, rank in sound:
        rates = [facts.workload.pack_tokens / seconds for seconds in rank.alone_seconds if seconds > 0]
        numbers.append(measurement(STEP_RATE, rates, "tokens/s", name_of(number, rank)))
        findings += _judge_alone(facts.workload, rank, rates, name_of(number, rank), limits)
        if rank.ideal_seconds is not None and rank.alone_seconds:
            shares = [rank.ideal_seconds / seconds for seconds in rank.alone_seconds if seconds > 0]
            numbers.append(measurement(STEP_MFU, shares, "1", name_of(number, rank)))
    gpus = [(rank.gpu, [1 / s for s in rank.alone_seconds if s > 0]) for _, rank in sound if rank.gpu is not None]
    findings += judge_fleet("training step alone", gpus)
    medians = [percentile(rank.alone_seconds, 50) for _, rank in sound]
    passed = [f"{len(sound)} rank(s) alone: {_span(facts.workload, medians)}"]
    if len(facts.ranks) > 1:
        judged, shown = _judge_together(facts, limits)
        findings += judged
        numbers += shown
        passed += [text for verdict, text in judged if verdict is Verdict.PASS]
    return conclude(findings, numbers, when_passed="; ".join(passed))


def _judge_alone(
    workload: Workload, rank: RateRank, rates: Sequence[float], where: str, limits: Limits
) -> list[Finding]:
    if rank.gpu is None:
        if len(rates) < MIN_SAMPLES:
            return [(Verdict.INCONCLUSIVE, f"{where}: {len(rates)} steps were timed, at least {MIN_SAMPLES} needed")]
        return [(Verdict.PASS, f"{where} trains, {percentile(rates, 50):.4g} tokens/s (recorded, not judged)")]
    if rank.ideal_seconds is None or not rank.attention:
        return [(Verdict.INCONCLUSIVE, f"{where}: no ceiling or no attention kernel was told")]
    limit = step_limit(workload, rank, limits)
    findings = []
    if limit is not None:
        findings.append(judge_rate(limit, rates, where))
    elif rank.recomputed != "none":
        text = f"{where}: for want of memory the step computes {rank.recomputed} activations again; rate not judged"
        findings.append((Verdict.WARN, text))
    shares = [rank.ideal_seconds * rate / workload.pack_tokens for rate in rates]
    findings.append(judge_rate(limits.of(known.MFU[workload.base]), shares, where))
    return findings


def step_limit(workload: Workload, rank: RateRank, limits: Limits) -> Limit | None:
    """The floor of tokens a second: the user's own for this GPU, or ours for the very step that was measured."""
    assert rank.gpu is not None
    own = limits.named(f"training step on {rank.gpu.name}")
    kind = kind_of(rank.gpu.name)
    built_in = known.STEP.get((kind, rank.attention[0])) if kind else None
    if own is not None or built_in is None or workload.base != "fp8" or rank.recomputed != "none":
        return own
    return limits.of(built_in)


def _judge_together(facts: RateFacts, limits: Limits) -> tuple[list[Finding], list[Measurement]]:
    """What a step of all ranks takes over one alone, and whose passes the others waited for."""
    where = node_name()
    alone = [percentile(rank.alone_seconds, 50) for rank in facts.ranks if rank.alone_seconds]
    steps = [seconds for seconds in facts.together_seconds if seconds > 0]
    if len(alone) < len(facts.ranks) or len(steps) < MIN_SAMPLES:
        return [(Verdict.INCONCLUSIVE, f"{len(steps)} steps of all ranks together were timed")], []
    shares = [percentile(alone, 50) / seconds for seconds in steps]
    numbers = [
        measurement("step rate together", [facts.workload.pack_tokens / s for s in steps], "tokens/s", where),
        measurement("training together over alone", shares, "1", where),
    ]
    kinds = {kind_of(rank.gpu.name) if rank.gpu else None for rank in facts.ranks}
    kind = kinds.pop() if len(kinds) == 1 else None
    waiting = max(alone) / percentile(alone, 50) - 1
    shown = f"together {percentile(shares, 50):.1%} of alone, of which the slowest rank alone explains {waiting:.1%}"
    if kind is not None and kind.nvlinks and not kind.bridged:
        verdict, text = judge_rate(limits.of(known.TOGETHER), shares, where)
        findings: list[Finding] = [(verdict, f"{text}; {shown}" if verdict is not Verdict.PASS else shown)]
    else:
        findings = [(Verdict.SKIPPED, f"{shown} (recorded, not judged: no NVLink)")]
    own = {name_of(n, rank): rank.own_seconds for n, rank in enumerate(facts.ranks) if rank.own_seconds is not None}
    numbers += [
        Measurement(name="own passes together", value=value, unit="s", n=len(steps), spread=0.0, where=name)
        for name, value in own.items()
    ]
    return [*findings, *(late_ranks(own) if kind is not None else [])], numbers


def late_ranks(own_seconds: Mapping[str, float]) -> list[Finding]:
    """Ranks whose own passes take over 5 % longer than the median rank's: with fewer than three, nobody is odd."""
    if len(own_seconds) < 3:
        return []
    centre = percentile(list(own_seconds.values()), 50)
    return [
        (Verdict.WARN, f"{name}: its own passes take {seconds / centre - 1:.1%} longer than the median rank's")
        for name, seconds in own_seconds.items()
        if seconds > (1 + LEAST_EFFECT) * centre
    ]


def name_of(number: int, rank: RateRank) -> str:
    gpu: Gpu | None = rank.gpu
    return gpu_label(gpu.index, gpu.uuid) if gpu else f"rank {number}"


def _span(workload: Workload, medians: Sequence[float]) -> str:
    rates = [workload.pack_tokens / seconds for seconds in medians]
    of = f"{workload.shape}, {workload.base} base"
    return f"{min(rates):.4g} to {max(rates):.4g} tokens/s each ({of})"


CHECKS = (
    Check(
        name="training.replay",
        question="Do the same training steps give the same bits on every GPU, alone and together, and sound losses?",
        remedy="take the named GPU out of use and have it replaced; where only together differs, test links and NCCL",
        facts=ReplayFacts,
        measure=measure_replay,
        judge=judge_replay,
        startup_seconds=180.0,
    ),
    Check(
        name="training.rate",
        question="Does each GPU train as fast as its kind does, and all together as fast as each alone?",
        remedy="slow alone: see gpu.gemm and its clocks; slow together only: see fabric.peer and collectives.nccl",
        facts=RateFacts,
        measure=measure_rate,
        judge=judge_step_rate,
        limits=known.TRAINING_LIMITS,
        share=3.0,
        startup_seconds=240.0,
    ),
)
