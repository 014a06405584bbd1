"""How fast a step of seatrial trains: on each GPU alone, all at once, then on all of them together.

Alone, GPUs are as hot and as hungry as together, so that what is lost together is lost between them. Random weights in
the shape of Llama 3.1 8B and random tokens: what a step costs depends on neither. Where there is no GPU, a tiny shape
says that training works here, and its rate is recorded only.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from seatrial.accept.checks.gpu_load import Gpu, cuda_gpus
from seatrial.accept.facts import Facts
from seatrial.accept.training.crew import CPU_RANKS, Phase, train_on_ranks
from seatrial.records import JsonObject

if TYPE_CHECKING:
    from seatrial.accept.check import Request
    from seatrial.data.dataset import TokenRows
    from seatrial.dist.world import World
    from seatrial.settings import TrainSettings
    from seatrial.train.rehearsal import Rehearsal
    from seatrial.train.step import StepReport

LEAST_STEPS = 8
MOST_STEPS = {"llama-3.1-8b": 200, "tiny": 20}
WARM_UP_STEPS = 6
"""Compilation, the choice of kernels, and clocks that rise and then fall to what power allows."""
WARM_UP_TOGETHER = 3
STEP_SECONDS = {"llama-3.1-8b": 0.4, "tiny": 0.15}
"""About what a step takes, to fit a budget."""


class Workload(Facts):
    """One pack of ``rows`` rows of ``length`` tokens a rank and step; adapters of ``rank`` on all linear layers."""

    shape: Literal["llama-3.1-8b", "tiny"]
    base: Literal["plain", "fp8"]
    compute: Literal["bfloat16", "float32"]
    rank: int
    length: int
    rows: int
    steps: int

    @property
    def pack_tokens(self) -> int:
        return self.rows * self.length


class RateRank(Facts):
    """``alone_seconds``: of each step with no other rank in it. ``own_seconds``: median of a rank's own forward and
    backward passes, together. ``ideal_seconds``: what the FLOPs of a step take at the rates that this GPU has just
    sustained in large products; None on a processor, as those are. ``attention``: kernels that are there, the fastest
    first. ``recomputed``: what the backward pass computes again for want of memory."""

    gpu: Gpu | None
    alone_seconds: tuple[float, ...]
    own_seconds: float | None
    ideal_seconds: float | None
    bf16_tflop_per_s: float | None
    fp8_tflop_per_s: float | None
    attention: tuple[str, ...]
    recomputed: str
    peak_gib: float | None
    error: str


class RateFacts(Facts):
    """``together_seconds``: of each step of all ranks, on the first; empty where there is one rank."""

    workload: Workload
    ranks: tuple[RateRank, ...]
    together_seconds: tuple[float, ...]


def measure_rate(request: "Request") -> RateFacts:
    gpus = cuda_gpus() if request.expected_gpus else []
    workload = workload_for(bool(gpus), request.seconds / 2)
    told = train_on_ranks(
        rehearse, len(gpus) or CPU_RANKS, workload, on_gpus=bool(gpus), seconds=request.patience_seconds
    )
    return rate_facts(workload, gpus, told)


def rate_facts(workload: Workload, gpus: Sequence[Gpu], told: Sequence[JsonObject]) -> RateFacts:
    """What ranks told, as facts."""
    ranks = []
    for number, one in enumerate(told):
        alone, together = one.get("alone", {}), one.get("together", {})
        own = together.get("own_seconds", [])
        ranks.append(
            RateRank(
                gpu=gpus[number] if gpus else None,
                alone_seconds=alone.get("seconds", ()),
                own_seconds=own[number] if own else None,
                ideal_seconds=alone.get("ideal_seconds"),
                bf16_tflop_per_s=alone.get("ceilings", {}).get("bf16"),
                fp8_tflop_per_s=alone.get("ceilings", {}).get("fp8"),
                attention=alone.get("attention", ()),
                recomputed=alone.get("recomputed", ""),
                peak_gib=alone.get("peak_gib"),
                error=one.get("error", ""),
            )
        )
    return RateFacts(
        workload=workload,
        ranks=tuple(ranks),
        together_seconds=told[0].get("together", {}).get("seconds", ()),
    )


def workload_for(on_gpus: bool, seconds: float) -> Workload:
    """As many steps as fit ``seconds``, within bounds."""
    import torch

    if not on_gpus:
        steps = _steps("tiny", seconds)
        return Workload(shape="tiny", base="plain", compute="float32", rank=8, length=128, rows=1, steps=steps)
    from seatrial.model.fp8 import has_fp8_units

    base: Literal["plain", "fp8"] = "fp8" if has_fp8_units(torch.device("cuda", 0)) else "plain"
    steps = _steps("llama-3.1-8b", seconds)
    return Workload(shape="llama-3.1-8b", base=base, compute="bfloat16", rank=64, length=4096, rows=2, steps=steps)


def _steps(shape: str, seconds: float) -> int:
    return int(min(max(seconds / STEP_SECONDS[shape], LEAST_STEPS), MOST_STEPS[shape]))


def rehearse(rank: int, folder: Path, asked: Workload) -> tuple[Phase, Phase]:
    """Alone, then the same model and compiled code among the others."""
    held: list[Rehearsal] = []
    return partial(_alone, asked, folder, held), partial(_together, asked, folder, held)


def _alone(workload: Workload, folder: Path, held: "list[Rehearsal]", world: "World") -> JsonObject:
    import torch

    from seatrial.hardware import GIB
    from seatrial.rundir import RunDir
    from seatrial.train.ceiling import gemm_ceilings
    from seatrial.train.fingerprint import bits_fingerprint
    from seatrial.train.meter import cost_of
    from seatrial.train.rehearsal import refuse_broken, take_steps, work_of

    rehearsal = prepared(workload, folder, world)
    ceilings = gemm_ceilings(RunDir(folder), world.device)
    reports = list(take_steps(rehearsal, range(WARM_UP_STEPS + workload.steps)))
    refuse_broken(reports)
    held.append(rehearsal)
    work = work_of(rehearsal.packs, range(1))
    cost = cost_of(rehearsal.training.model, rehearsal.settings)
    base = "fp8" if workload.base == "fp8" else "bf16"
    on_gpu = world.device.type == "cuda"
    return {
        "seconds": [report.seconds for report in reports[WARM_UP_STEPS:]],
        "ideal_seconds": cost.ideal_seconds(work, ceilings, base) if ceilings else None,
        "ceilings": ceilings or {},
        "attention": bits_fingerprint(world, rehearsal.choice.layout, rehearsal.exactness).get("attention", []),
        "recomputed": rehearsal.choice.layout.checkpointing,
        "peak_gib": torch.cuda.max_memory_allocated() / GIB if on_gpu else None,
    }


def _together(workload: Workload, folder: Path, held: "list[Rehearsal]", world: "World") -> JsonObject:
    from seatrial.train.rehearsal import moved

    return timed(moved(held.pop(), world, settings_of(workload, folder, world.size)), workload.steps)


def timed(rehearsal: "Rehearsal", steps: int, *, warm_up: int = WARM_UP_TOGETHER) -> JsonObject:
    """Seconds of each step, and of each rank's own passes (median). Collective."""
    from seatrial.train.rehearsal import refuse_broken, take_steps

    reports = list(take_steps(rehearsal, range(warm_up + steps)))
    refuse_broken(reports)
    counted = reports[warm_up:]
    return {"seconds": [report.seconds for report in counted], "own_seconds": own_medians(counted)}


def own_medians(reports: "Sequence[StepReport]") -> list[float]:
    """Of each rank; empty before all of them have told."""
    import numpy as np

    told = [report.rank_seconds for report in reports if min(report.rank_seconds) > 0]
    return [float(median) for median in np.median(told, axis=0)] if told else []


def prepared(workload: Workload, folder: Path, world: "World") -> "Rehearsal":
    """The model of ``workload`` in this world. Collective.

    Raises:
        ImpossibleConfiguration: it does not fit these GPUs.
    """
    from seatrial.model.shapes import shape
    from seatrial.train.rehearsal import prepare

    shape(workload.shape).save_pretrained(folder / "model")
    rows = random_tokens(workload)
    return prepare(settings_of(workload, folder, world.size), rows, world, longest_row=workload.length)


def random_tokens(workload: Workload) -> "TokenRows":
    """The same for every rank, a pack of rows for each; used again from step to step."""
    from seatrial.data.random_rows import random_rows

    packs = 8
    return random_rows("fixed", length=workload.length, tokens=packs * workload.pack_tokens, vocabulary=2048, seed=0)


def settings_of(workload: Workload, folder: Path, ranks: int) -> "TrainSettings":
    from seatrial.settings import TrainSettings

    return TrainSettings.model_validate(
        {
            "run": {"dir": folder, "exact": "off"},
            "model": {
                "path": str(folder / "model"),
                "weights": "random",
                "base": workload.base,
                "dtype": workload.compute,
                "compute": workload.compute,
            },
            "data": {"train": folder, "length": workload.pack_tokens},
            "lora": {"rank": workload.rank, "alpha": 2 * workload.rank},
            "optimizer": {
                "steps": WARM_UP_STEPS + workload.steps,
                "packs_per_step": ranks,
                "learning_rate": 1e-5,
                "schedule": "constant",
            },
            "parallel": {"plan": "replicate"},
        }
    )
