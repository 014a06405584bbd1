"""How fast this machine trains: the very steps of `seatrial train`, timed, on random weights and rows or on real ones.

Works alone and under torchrun.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.distributed as dist
from rich.console import Console

from seatrial.data.dataset import TokenRows, load_rows
from seatrial.data.random_rows import Lengths, random_rows
from seatrial.data.render import TrainOn, load_renderer
from seatrial.dist.plan import Layout
from seatrial.dist.world import World, joined_world
from seatrial.errors import ImpossibleConfiguration, UsageError
from seatrial.hardware import GIB
from seatrial.model.load import model_directory
from seatrial.model.shapes import shape
from seatrial.provenance import provenance
from seatrial.records import Frozen, JsonObject
from seatrial.rundir import RunDir
from seatrial.settings import (
    DataSettings,
    LoraSettings,
    ModelSettings,
    OptimizerSettings,
    ParallelSettings,
    RunSettings,
    TrainSettings,
)
from seatrial.train.ceiling import gemm_ceilings
from seatrial.train.exact import Exactness, choose_exactness
from seatrial.train.flops import Work
from seatrial.train.layout import as_event, choose_layout
from seatrial.train.meter import cost_of
from seatrial.train.rehearsal import forget, prepare, refuse_broken, take_steps, work_of
from seatrial.train.step import StepReport

WARM_UP_STEPS = 6
"""Not counted: compilation, the choice of kernels, and clocks that rise and then fall to what power allows."""
MOST_PACK_TOKENS = 32_768
"""Of an automatic batch: products are long enough by then, and nothing gets faster."""
PACKS_OF_ROWS = 32
"""Rows enough for this many packs a GPU; they are then used again."""
RANDOM_WEIGHTS = (
    "random weights: this is about speed and memory alone, and the loss means nothing. GPUs draw more power on some "
    "numbers than on others, so that a trained model may run a few per cent slower or faster"
)


class BenchRequest(Frozen):
    """What is measured. ``batch``: rows of ``length`` tokens in a pack; None: as many as fit."""

    shape: str = "llama-3.1-8b"
    model: str | None = None
    data: Path | None = None
    method: Literal["lora", "full"] = "lora"
    base: Literal["bf16", "fp8", "nf4"] = "bf16"
    rank: int = 64
    length: int = 4096
    batch: int | None = None
    lengths: Lengths = "fixed"
    plan: Literal["auto", "replicate", "shard", "hybrid"] = "auto"
    exact: Literal["auto", "on", "off"] = "auto"
    packs: int = 1
    steps: int = 20
    seed: int = 0
    timeout_seconds: int = 600


@dataclass(frozen=True)
class Measured:
    """Steps of one world. ``seconds`` from the end of the warm-up to the end of the last step, on the first rank."""

    reports: tuple[StepReport, ...]
    work: Work
    positions: int
    flop: int
    ideal_seconds: float | None
    seconds: float
    peak_bytes: int
    layout: JsonObject
    exactness: Exactness


def bench_train(request: BenchRequest) -> JsonObject | None:
    """Measure and say what came out; None on all ranks but the first. All ranks run this.

    Raises:
        UsageError: settings that contradict each other.
        ImpossibleConfiguration: not even one row a pack fits this machine.
    """
    if request.data is not None and request.model is None:
        raise UsageError("--data: real rows need a tokenizer; give --model too")
    with tempfile.TemporaryDirectory(prefix="seatrial-bench-") as folder:
        model = request.model or _write_shape(request.shape, Path(folder) / "model")
        run = RunDir(Path(folder))
        with joined_world(timeout_seconds=request.timeout_seconds) as world:
            ceilings = gemm_ceilings(run, world.device)
            batch = request.batch or _planned_batch(request, model, run, world)
            while True:
                settings = _settings(request, model, run, batch, world)
                try:
                    measured = _measure(settings, request, world, ceilings)
                    break
                except torch.OutOfMemoryError as error:
                    if request.batch is not None or batch == 1:
                        raise ImpossibleConfiguration(
                            f"batch {batch}: out of GPU memory; take fewer rows, fp8 or nf4, or shard over more GPUs"
                        ) from error
                batch -= 1
                forget()
            if not world.is_first:
                return None
            return _result(request, settings, batch, measured, world)


def _write_shape(name: str, folder: Path) -> str:
    folder.mkdir()
    shape(name).save_pretrained(folder)
    return str(folder)


def _settings(request: BenchRequest, model: str, run: RunDir, batch: int, world: World) -> TrainSettings:
    lora = LoraSettings(rank=request.rank, alpha=2 * request.rank) if request.method == "lora" else None
    return TrainSettings(
        run=RunSettings(dir=run.path, seed=request.seed, exact=request.exact, timeout_seconds=request.timeout_seconds),
        model=ModelSettings(
            path=model,
            weights="random" if request.model is None else "pretrained",
            base="plain" if request.base == "bf16" else request.base,
        ),
        data=DataSettings(train=request.data or run.path, length=batch * request.length),
        lora=lora,
        optimizer=OptimizerSettings(
            steps=WARM_UP_STEPS + request.steps,
            packs_per_step=request.packs * world.size,
            learning_rate=1e-5,
            schedule="constant",
        ),
        parallel=ParallelSettings(plan=request.plan),
    )


def _planned_batch(request: BenchRequest, model: str, run: RunDir, world: World) -> int:
    """The most rows a pack that fit as one row does, with nothing more computed again, by the planner's estimate.

    Raises:
        ImpossibleConfiguration: not even one fits.
    """

    def layout(rows: int) -> Layout:
        settings = _settings(request, model, run, rows, world)
        return choose_layout(settings, world, choose_exactness(settings, request.length)).layout

    one = layout(1)
    batch = 1
    while world.device.type == "cuda" and (batch + 1) * request.length <= MOST_PACK_TOKENS:
        try:
            if layout(batch + 1) != one:
                break
        except ImpossibleConfiguration:
            break
        batch += 1
    return batch


def _rows(settings: TrainSettings, request: BenchRequest, world: World) -> TokenRows:
    if request.data is not None:
        renderer = load_renderer(model_directory(settings.model.path), None)
        return load_rows(request.data, renderer, train_on=TrainOn.ALL, length=request.length, over_long="drop")
    from transformers import AutoConfig

    return random_rows(
        request.lengths,
        length=request.length,
        tokens=PACKS_OF_ROWS * world.size * settings.data.length,
        vocabulary=AutoConfig.from_pretrained(model_directory(settings.model.path)).vocab_size,
        seed=request.seed,
    )


def _measure(
    settings: TrainSettings, request: BenchRequest, world: World, ceilings: dict[str, float] | None
) -> Measured:
    rehearsal = prepare(settings, _rows(settings, request, world), world, longest_row=request.length)
    counted = range(WARM_UP_STEPS, WARM_UP_STEPS + request.steps)
    reports: list[StepReport] = []
    for report in take_steps(rehearsal, range(counted.stop)):
        reports.append(report)
        if len(reports) == WARM_UP_STEPS and world.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
    refuse_broken(reports)

    packs = rehearsal.packs
    work = work_of(packs, counted)
    cost = cost_of(rehearsal.training.model, settings)
    base = "fp8" if settings.model.base == "fp8" and ceilings is not None and "fp8" in ceilings else "bf16"
    peaks = [0] * world.size
    dist.all_gather_object(peaks, torch.cuda.max_memory_allocated() if world.device.type == "cuda" else 0)
    return Measured(
        reports=tuple(reports[WARM_UP_STEPS:]),
        work=work,
        positions=len(counted) * packs.stream.packs_per_step * packs.stream.pack_length,
        flop=cost.flop(work),
        ideal_seconds=None if ceilings is None else cost.ideal_seconds(work, ceilings, base),
        seconds=sum(report.seconds for report in reports[WARM_UP_STEPS:]),
        peak_bytes=max(peaks),
        layout=as_event(rehearsal.choice),
        exactness=rehearsal.exactness,
    )


def _result(request: BenchRequest, settings: TrainSettings, batch: int, measured: Measured, world: World) -> JsonObject:
    per_gpu_second = measured.seconds * world.size
    step_ms = [1e3 * report.seconds for report in measured.reports]
    p5, p50, p90, p95, p99 = np.percentile(step_ms, (5, 50, 90, 95, 99)).tolist()
    return {
        "tokens_per_s_per_gpu": measured.positions / per_gpu_second,
        "nonpad_tokens_per_s_per_gpu": measured.work.tokens / per_gpu_second,
        "trained_tokens_per_s_per_gpu": measured.work.trained_tokens / per_gpu_second,
        "tflops_per_gpu": measured.flop / per_gpu_second / 1e12,
        "mfu": None if measured.ideal_seconds is None else measured.ideal_seconds / per_gpu_second,
        "peak_memory_gib": measured.peak_bytes / GIB if world.device.type == "cuda" else None,
        "rank_ms_p50": _rank_ms(measured.reports),
        "step_ms": {"p50": p50, "p90": p90, "p99": p99, "n": len(step_ms), "spread": (p95 - p5) / 2},
        "data_ms_p50": 1e3 * float(np.median([report.data_seconds for report in measured.reports])),
        "gpus": world.size,
        "device": torch.cuda.get_device_name() if world.device.type == "cuda" else "cpu",
        "batch": batch,
        "layout": measured.layout,
        "exact": measured.exactness.promise,
        "settings": {
            **request.model_dump(mode="json"),
            "warm_up_steps": WARM_UP_STEPS,
            "train": settings.model_dump(mode="json", exclude={"run": {"dir"}, "model": {"path"}, "data": {"train"}}),
        },
        "warnings": [RANDOM_WEIGHTS] if request.model is None else [],
        "provenance": provenance(),
    }


def _rank_ms(reports: Sequence[StepReport]) -> list[float]:
    """Median time of each rank's own forward and backward passes: a slow GPU holds up the others."""
    told = [report.rank_seconds for report in reports if min(report.rank_seconds) > 0]
    return [1e3 * float(median) for median in np.median(told, axis=0)] if told else []


def say(result: JsonObject) -> None:
    """A result for people, on stderr."""
    console = Console(stderr=True, highlight=False)
    step = result["step_ms"]
    memory = result["peak_memory_gib"]
    console.print(
        f"{result['tokens_per_s_per_gpu']:,.0f} tokens/s per GPU ({result['nonpad_tokens_per_s_per_gpu']:,.0f} without "
        f"padding), {result['tflops_per_gpu']:.0f} TFLOP/s"
        + (f", MFU {result['mfu']:.0%}" if result["mfu"] is not None else "")
        + (f", peak {memory:.1f} GiB" if memory is not None else "")
    )
    console.print(
        f"step {step['p50']:.1f} ms (median of {step['n']}, +-{step['spread']:.1f}; p99 {step['p99']:.1f}), "
        f"batch {result['batch']}, {result['layout']['plan']} on {result['gpus']} x {result['device']}, "
        f"exact: {result['exact']}"
    )
    for warning in result["warnings"]:
        console.print(f"note: {warning}")
