"""What training says about itself: a line of metrics.jsonl for each step, and now and then a line on the terminal."""

import statistics
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import torch
from rich.console import Console
from transformers import PreTrainedModel

from seatrial.dist.plan import Shape
from seatrial.hardware import GIB
from seatrial.rundir import RunDir
from seatrial.settings import TrainSettings
from seatrial.train.ceiling import gemm_ceilings
from seatrial.train.flops import FlopCost, flop_cost
from seatrial.train.pace import Expected, Pace, expected_pace, judge_pace, says_something
from seatrial.train.packs import RankPacks
from seatrial.train.step import StepReport, Training

_SECONDS_BETWEEN_LINES = 2.0
_WINDOW_STEPS = 200
"""Steps that percentiles look back on: enough for a 99th, few enough to show a change."""


@dataclass(frozen=True)
class StepRecord:
    """A line of metrics.jsonl. ``step`` counts from 1; ``packs`` are positions in the global stream of packs.

    Rates are of all GPUs together, but for ``model_tflop_per_s_per_gpu``. ``tokens`` are those that are no padding;
    ``padded_tokens_per_s`` counts padding too. ``mfu`` is the time that the model's FLOPs would take at the measured
    ceiling of the formats they are done in, over the time taken. Percentiles are over the last 200 steps of this
    attempt. ``data_seconds`` is what the host spent laying out packs: a wait only where it nears ``seconds``.
    ``rank_skew`` is the slowest rank's own forward and backward time over the median rank's, a step earlier.
    """

    step: int
    attempt: int
    epoch: float
    loss: float
    learning_rate: float
    grad_norm: float
    trained_tokens: int
    tokens: int
    packs: list[int]
    seconds: float
    tokens_per_s: float
    padded_tokens_per_s: float
    trained_tokens_per_s: float
    model_tflop_per_s_per_gpu: float
    mfu: float | None
    data_seconds: float
    seconds_p50: float
    seconds_p90: float
    seconds_p99: float
    memory_allocated_gib: float | None
    memory_reserved_gib: float | None
    memory_peak_gib: float | None
    rank_skew: float | None
    slowest_rank: int | None


class Meter:
    """Turns reports of steps into records and writes them. Rank 0 only.

    Args:
        steps: of the whole run.
        ceilings: TFLOP/s by format, as ``gemm_ceilings`` measures them; None where there is no GPU.
        base_format: the format in which the base is multiplied: a key of ``ceilings``.
        expected: what these GPUs did when they were accepted; None: nobody said.
    """

    def __init__(
        self,
        run: RunDir,
        *,
        steps: int,
        attempt: int,
        packs: RankPacks,
        cost: FlopCost,
        ceilings: Mapping[str, float] | None,
        base_format: str,
        expected: Expected | None = None,
    ) -> None:
        self._run = run
        self._steps = steps
        self._attempt = attempt
        self._packs = packs
        self._gpus = packs.world.size
        self._cost = cost
        self._ceilings = ceilings
        self._base_format = base_format
        self._expected = expected
        self._pace = Pace()
        self._told_expectation = False
        self._recent: deque[float] = deque(maxlen=_WINDOW_STEPS)
        self._console = Console(stderr=True, highlight=False)
        self._last_line = 0.0

    def write(self, report: StepReport, learning_rate: float) -> StepRecord:
        """Append the record of a step, and the alarms that it gives cause for."""
        seconds, done = report.seconds, report.step + 1
        self._recent.append(seconds)
        work = self._packs.work(report.step)
        stream = self._packs.stream
        packs = stream.packs_per_step
        p50, p90, p99 = np.percentile(self._recent, (50, 90, 99)).tolist()
        memory = _memory_gib()
        skew, slowest = skew_of(report.rank_seconds)
        record = StepRecord(
            step=done,
            attempt=self._attempt,
            epoch=done * packs / stream.packs_per_epoch,
            loss=report.loss,
            learning_rate=learning_rate,
            grad_norm=report.grad_norm,
            trained_tokens=work.trained_tokens,
            tokens=work.tokens,
            packs=list(range(report.step * packs, done * packs)),
            seconds=seconds,
            tokens_per_s=work.tokens / seconds,
            padded_tokens_per_s=packs * stream.pack_length / seconds,
            trained_tokens_per_s=work.trained_tokens / seconds,
            model_tflop_per_s_per_gpu=self._cost.flop(work) / self._gpus / seconds / 1e12,
            mfu=self._cost.ideal_seconds(work, self._ceilings, self._base_format) / self._gpus / seconds
            if self._ceilings
            else None,
            data_seconds=report.data_seconds,
            seconds_p50=p50,
            seconds_p90=p90,
            seconds_p99=p99,
            memory_allocated_gib=memory.get("allocated_bytes.all.current"),
            memory_reserved_gib=memory.get("reserved_bytes.all.current"),
            memory_peak_gib=memory.get("allocated_bytes.all.peak"),
            rank_skew=skew,
            slowest_rank=slowest,
        )
        self._run.append(self._run.metrics, asdict(record))
        self._watch_pace(record, report.rank_seconds)
        self._say(record)
        return record

    def _watch_pace(self, record: StepRecord, rank_seconds: Sequence[float]) -> None:
        if self._expected is None:
            return
        packs_per_gpu = -(-len(record.packs) // self._gpus)
        ideal_seconds = None if record.mfu is None else record.mfu * record.seconds / packs_per_gpu
        judged = says_something(ideal_seconds)
        mfu = record.mfu if judged else None
        if not self._told_expectation:
            self._told_expectation = True
            # Both are in inverse proportion to the time that this step took, which therefore does not matter.
            rate = record.tokens_per_s * self._expected.mfu / mfu if mfu and self._expected.mfu else None
            self._run.event(
                "expected", judged=judged, mfu=self._expected.mfu, tokens_per_s=rate, slowness=self._expected.slowness
            )
        self._pace, alarms = judge_pace(
            self._pace, self._expected, seconds=record.seconds, mfu=mfu, rank_seconds=rank_seconds
        )
        for alarm in alarms:
            self._run.event("alarm", what=alarm.what, reason=alarm.reason, step=record.step)
            self._console.print(f"alarm: {alarm.reason}")

    def _say(self, record: StepRecord) -> None:
        now = time.monotonic()
        if now - self._last_line > _SECONDS_BETWEEN_LINES or record.step == self._steps:
            self._last_line = now
            mfu = "" if record.mfu is None else f"  MFU {record.mfu:.0%}"
            self._console.print(
                f"step {record.step}/{self._steps}  epoch {record.epoch:.2f}  loss {record.loss:.4f}  "
                f"grad norm {record.grad_norm:.3f}  {record.tokens_per_s:,.0f} tokens/s{mfu}"
            )


def open_meter(
    run: RunDir, settings: TrainSettings, training: Training, packs: RankPacks, *, steps: int, attempt: int
) -> Meter | None:
    """The meter of a run, after measuring what this GPU sustains; None on all ranks but the first. Collective."""
    expected = expected_pace(settings, training.world)
    if not training.world.is_first:
        return None
    ceilings = gemm_ceilings(run, training.world.device)
    in_fp8 = settings.model.base == "fp8" and ceilings is not None and "fp8" in ceilings
    return Meter(
        run,
        steps=steps,
        attempt=attempt,
        packs=packs,
        cost=cost_of(training.model, settings),
        ceilings=ceilings,
        base_format="fp8" if in_fp8 else "bf16",
        expected=expected,
    )


def cost_of(model: PreTrainedModel, settings: TrainSettings) -> FlopCost:
    """What the model's FLOPs are under these settings."""
    lora = settings.lora
    shape = Shape.of(model.config.to_dict())
    return flop_cost(shape, rank=lora.rank if lora else 0, targets=lora.targets if lora else ())


def skew_of(rank_seconds: Sequence[float]) -> tuple[float | None, int | None]:
    """Slowest over median, and which rank that is; nothing before every rank has told a time, or with one rank."""
    if len(rank_seconds) < 2 or min(rank_seconds) <= 0:
        return None, None
    slowest = max(range(len(rank_seconds)), key=lambda rank: rank_seconds[rank])
    return rank_seconds[slowest] / statistics.median(rank_seconds), slowest


def _memory_gib() -> dict[str, float]:
    if not torch.cuda.is_available():
        return {}
    return {key: value / GIB for key, value in torch.cuda.memory_stats().items() if key.endswith(("current", "peak"))}
