"""What a training step says about itself: a line of metrics.jsonl, and now and then a line on the terminal."""

import time
from dataclasses import asdict, dataclass

from rich.console import Console

from seatrial.records import append_jsonl
from seatrial.rundir import RunDir

_SECONDS_BETWEEN_LINES = 2.0


@dataclass(frozen=True)
class StepRecord:
    """A line of metrics.jsonl. ``step`` counts from 1; ``packs`` are positions in the global stream of packs."""

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


class Meter:
    """Writes step records. Rank 0 only."""

    def __init__(self, run: RunDir, steps: int) -> None:
        self._run = run
        self._steps = steps
        self._console = Console(stderr=True, highlight=False)
        self._last_line = 0.0

    def write(self, record: StepRecord) -> None:
        append_jsonl(self._run.metrics, asdict(record))
        now = time.monotonic()
        if now - self._last_line > _SECONDS_BETWEEN_LINES or record.step == self._steps:
            self._last_line = now
            self._console.print(
                f"step {record.step}/{self._steps}  epoch {record.epoch:.2f}  loss {record.loss:.4f}  "
                f"grad norm {record.grad_norm:.3f}  {record.tokens_per_s:,.0f} tokens/s"
            )
