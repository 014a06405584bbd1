"""The same few steps again and again: equal to the bit on every rank, alone and together, and near recorded losses.

The model and the tokens are fixed: the tiny base that is shipped, adapters whose beginning follows from a seed, and
rows that are an arithmetic of their positions. Steps are exact (:mod:`seatrial.train.exact`), so that the sum over all
ranks gives the bits that each rank gives alone.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from seatrial.accept.check import Finding, Judgement, Request, conclude
from seatrial.accept.checks.gpu_load import Gpu, cuda_gpus
from seatrial.accept.facts import Facts
from seatrial.accept.limits import Limits
from seatrial.accept.parts import gpu_label
from seatrial.accept.training.crew import CPU_RANKS, Phase, Work, train_on_ranks
from seatrial.records import JsonObject, Measurement, Verdict

if TYPE_CHECKING:
    from seatrial.data.dataset import TokenRows
    from seatrial.dist.world import World
    from seatrial.settings import TrainSettings

PACKS, LENGTH, STEPS = 4, 64, 6
RANK = 8
LEARNING_RATE = 3e-3
TOLERANCE = {"float32": 1e-3, "bfloat16": 2e-2}
"""Relative, of each loss, against the float32 curve of one processor. Kernels sum in other orders, and bfloat16 keeps 8
bits: 1.8e-3 on four H200s and an H100, nothing between two cores. A wrong product moves a loss by more."""


class Run(Facts):
    """``sha256`` of the adapters after the last step, and of the losses on the way. ``broken``: what was not finite."""

    sha256: str
    losses: tuple[float, ...]
    broken: str


class ReplayRank(Facts):
    """``alone``: each run from the same beginning. ``gpu`` is None on a processor."""

    gpu: Gpu | None
    alone: tuple[Run, ...]
    together: Run | None
    error: str


class ReplayFacts(Facts):
    ranks: tuple[ReplayRank, ...]
    compute: str
    curve: tuple[float, ...]


def measure_replay(request: Request) -> ReplayFacts:
    gpus = cuda_gpus() if request.expected_gpus else []
    return replay_on(len(gpus) or CPU_RANKS, gpus, replay, request.patience_seconds)


def replay_on(ranks: int, gpus: Sequence[Gpu], work: Work, seconds: float) -> ReplayFacts:
    """What ``work`` came to on each rank; ``gpus`` are those that they sit on, none for ranks on the processor."""
    told = train_on_ranks(work, ranks, None, on_gpus=bool(gpus), seconds=seconds)
    return ReplayFacts(
        ranks=tuple(
            ReplayRank(
                gpu=gpus[rank] if gpus else None,
                alone=tuple(map(Run.model_validate, one.get("alone", {}).get("runs", ()))),
                together=Run.model_validate(one["together"]) if "together" in one else None,
                error=one.get("error", ""),
            )
            for rank, one in enumerate(told)
        ),
        compute="bfloat16" if gpus else "float32",
        curve=recorded_curve(),
    )


def recorded_curve() -> tuple[float, ...]:
    """Losses of the first run of one rank on a processor: ``assets/accept/curve.json`` says where and when."""
    return tuple(json.loads(files("seatrial").joinpath("assets/accept/curve.json").read_text())["losses"])


def replay(rank: int, folder: Path, asked: object) -> tuple[Phase, Phase]:
    """Two runs alone, one together."""
    return partial(_twice, folder), partial(_run, folder)


def _twice(folder: Path, world: "World") -> JsonObject:
    return {"runs": [_run(folder, world), _run(folder, world)]}


def _run(folder: Path, world: "World") -> JsonObject:
    """Collective: all ranks of ``world`` share the same packs."""
    from seatrial.train.rehearsal import prepare, take_steps

    settings = _settings(folder, world.device.type)
    rehearsal = prepare(settings, fixed_rows(), world, longest_row=LENGTH)
    reports = list(take_steps(rehearsal, range(STEPS)))
    losses = [report.loss for report in reports]
    bad = [report for report in reports if not math.isfinite(report.loss + report.grad_norm)]
    digest = hashlib.sha256(repr(losses).encode())
    for _, parameter in sorted(rehearsal.training.trainable.items()):
        digest.update(parameter.detach().float().cpu().numpy().tobytes())
    broken = f"step {bad[0].step + 1}: loss {bad[0].loss}, gradient norm {bad[0].grad_norm}" if bad else ""
    return {
        "sha256": digest.hexdigest(),
        "losses": [] if broken else losses,
        "broken": broken,
    }


def fixed_rows() -> "TokenRows":
    """Rows that fill a pack each; each repeats a motif of its own, so that there is something to learn."""
    import numpy as np

    from seatrial.data.dataset import TokenRows
    from seatrial.data.render import Rendered

    at_T = np.arange(LENGTH)
    rows = []
    for row in range(PACKS):
        motif_T = at_T % (7 + 2 * row)
        ids_T = (3 + (motif_T**2 * 131 + motif_T * (37 + row) + row * 251) % 2000).astype(np.int32)
        rows.append(Rendered(ids_T, np.ones(LENGTH, dtype=bool)))
    return TokenRows(tuple(rows), {})


def _settings(folder: Path, device: str) -> "TrainSettings":
    from seatrial.settings import TrainSettings

    return TrainSettings.model_validate(
        {
            "run": {"dir": folder, "seed": 20, "exact": "on"},
            "model": {
                "path": "tiny",
                "dtype": "float32",
                "compute": "bfloat16" if device == "cuda" else "float32",
                "compile": "off",
            },
            "data": {"train": folder, "length": LENGTH},
            "lora": {"rank": RANK, "alpha": 2 * RANK},
            "optimizer": {
                "steps": STEPS,
                "packs_per_step": PACKS,
                "learning_rate": LEARNING_RATE,
                "schedule": "constant",
            },
            "parallel": {"plan": "replicate"},
        }
    )


def judge_replay(facts: ReplayFacts, limits: Limits) -> Judgement:
    """Majority vote over all runs of all ranks; then the losses of those that agree, against the recorded curve."""
    names = {rank: _name(rank, one.gpu) for rank, one in enumerate(facts.ranks)}
    findings: list[Finding] = [
        (Verdict.INCONCLUSIVE, f"{names[rank]} could not train: {one.error}")
        for rank, one in enumerate(facts.ranks)
        if one.error
    ]
    findings += [
        (Verdict.FAIL, f"{names[rank]}: {run.broken}")
        for rank, one in enumerate(facts.ranks)
        for run in _runs(one)
        if run.broken
    ]
    alone = {rank: [run.sha256 for run in one.alone] for rank, one in enumerate(facts.ranks)}
    if len(facts.ranks) < 1 or min(map(len, alone.values()), default=0) < 2:
        return conclude([*findings, (Verdict.INCONCLUSIVE, "no rank ran the steps twice")])
    if len(facts.ranks) > 1 and not findings and any(one.together is None for one in facts.ranks):
        findings.append((Verdict.INCONCLUSIVE, "the ranks did not train together"))
    findings += _vote(alone, names)
    findings += _together(facts, alone, names) if not findings else []
    findings += _near_curve(facts, names)
    worst = max((_deviation(run, facts.curve) for one in facts.ranks for run in _runs(one)), default=0.0)
    count = sum(len(_runs(one)) for one in facts.ranks)
    passed = f"{count} runs of {STEPS} steps gave one sha256 on {len(facts.ranks)} rank(s), losses within {worst:.1e}"
    number = Measurement(name="largest loss deviation", value=worst, unit="1", n=count, spread=0.0, where="training")
    return conclude(findings or [(Verdict.PASS, passed)], [number])


def _vote(alone: Mapping[int, Sequence[str]], names: Mapping[int, str]) -> list[Finding]:
    """Who differs from what most runs gave, or from itself."""
    every = Counter(sha for found in alone.values() for sha in found)
    (agreed, votes), *_ = every.most_common()
    if votes * 2 <= every.total():
        unsteady = [names[rank] for rank, found in alone.items() if len(set(found)) > 1]
        who = f"{', '.join(unsteady)} differ(s) from itself" if unsteady else f"{', '.join(names.values())} are suspect"
        return [(Verdict.FAIL, f"no majority among {every.total()} replays of the same steps: {who}")]
    return [
        (Verdict.FAIL, f"{names[rank]} trained to other bits in {wrong} of {len(found)} replays of the same steps")
        for rank, found in alone.items()
        if (wrong := sum(sha != agreed for sha in found))
    ]


def _together(facts: ReplayFacts, alone: Mapping[int, Sequence[str]], names: Mapping[int, str]) -> list[Finding]:
    """All ranks gave one sha256 alone; what differs together came by the exchange between them."""
    agreed = alone[0][0]
    runs = {rank: one.together for rank, one in enumerate(facts.ranks) if one.together is not None}
    wrong = [names[rank] for rank, run in runs.items() if run.sha256 != agreed]
    if not wrong:
        return []
    text = f"{', '.join(wrong)}: other bits together than alone, so what passes between the ranks is damaged"
    return [(Verdict.FAIL, text)]


def _near_curve(facts: ReplayFacts, names: Mapping[int, str]) -> list[Finding]:
    tolerance = TOLERANCE.get(facts.compute)
    if tolerance is None or not facts.curve:
        return [(Verdict.INCONCLUSIVE, f"no recorded losses for {facts.compute}")]
    findings: list[Finding] = []
    for rank, one in enumerate(facts.ranks):
        whole = [run for run in _runs(one) if not run.broken]
        if any(len(run.losses) != len(facts.curve) for run in whole):
            findings.append((Verdict.INCONCLUSIVE, f"{names[rank]}: not every step told a loss"))
            continue
        off = max((_deviation(run, facts.curve) for run in whole), default=0.0)
        if off > tolerance:
            text = f"{names[rank]}: losses {off:.1e} off the recorded curve, more than {tolerance:g}"
            findings.append((Verdict.FAIL, text))
    return findings


def _deviation(run: Run, curve: Sequence[float]) -> float:
    return max((abs(loss - known) / known for loss, known in zip(run.losses, curve, strict=False)), default=0.0)


def _runs(rank: ReplayRank) -> list[Run]:
    return [*rank.alone, *([rank.together] if rank.together else [])]


def _name(rank: int, gpu: Gpu | None) -> str:
    return gpu_label(gpu.index, gpu.uuid) if gpu else f"rank {rank}"
