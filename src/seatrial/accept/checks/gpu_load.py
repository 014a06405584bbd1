"""What every check that loads GPUs needs: the GPUs as CUDA counts them, timing by events, and judging one rate."""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from seatrial.accept.check import MIN_SAMPLES, Finding, judge_rate, percentile
from seatrial.accept.facts import Facts
from seatrial.accept.fleet import stragglers
from seatrial.accept.limits import Limit
from seatrial.accept.parts import gpu_label as label
from seatrial.records import Verdict

if TYPE_CHECKING:
    import torch


class Gpu(Facts):
    """A GPU as CUDA counts it."""

    index: int
    name: str
    uuid: str


def cuda_gpus() -> list[Gpu]:
    """Raises: RuntimeError: CUDA shows no GPU."""
    import torch

    if not torch.cuda.is_available():
        raise RuntimeError("CUDA shows no GPU: a CPU build of PyTorch, or a driver that does not fit")
    gpus = []
    for index in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(index)
        uuid = str(found.uuid)
        gpus.append(Gpu(index=index, name=found.name, uuid=uuid if uuid.startswith("GPU-") else f"GPU-{uuid}"))
    return gpus


def judge_gpu_rate(limit: Limit | None, samples: Sequence[float], what: str, unit: str, gpu: Gpu) -> Finding:
    """A rate of one GPU. Without a floor for its kind the number is shown with a WARN, never passed."""
    where = label(gpu.index, gpu.uuid)
    if limit is None:
        finding = judge_rate(Limit(name=what, unit=unit, bound=float("inf"), arithmetic="", source=""), samples, where)
        text = f"{finding[1]}; no floor is known for {gpu.name}: give one with --limits"
        return (Verdict.WARN, text) if finding[0] is Verdict.SKIPPED else finding
    return judge_rate(limit, samples, where)


def span(what: str, unit: str, of_gpus: Sequence[Sequence[float]]) -> str:
    """One line for all GPUs: ``8 GPU(s): memory copy 4290 to 4310 GB/s``."""
    medians = [percentile(samples, 50) for samples in of_gpus]
    return f"{len(medians)} GPU(s): {what} {min(medians, default=0):.4g} to {max(medians, default=0):.4g} {unit}"


def judge_fleet(what: str, of_gpus: Sequence[tuple[Gpu, Sequence[float]]]) -> list[Finding]:
    """GPUs that fall behind others of their kind in this machine, even where each is above its floor."""
    findings: list[Finding] = []
    for name in sorted({gpu.name for gpu, _ in of_gpus}):
        medians = {label(gpu.index, gpu.uuid): percentile(s, 50) for gpu, s in of_gpus if gpu.name == name and s}
        for where, lack in stragglers(medians).items():
            findings.append((Verdict.WARN, f"{where}: {what} {lack:.1%} below the median of its neighbours"))
    return findings


def timed(device: int, action: Callable[[], object], repeats: int, seconds: float) -> list[float]:
    """Seconds of one ``action``, over batches of ``repeats``, by events on the GPU's stream, after one warm-up batch.

    Two batches are always queued, so that the GPU never waits for the host.
    """
    import torch

    durations: list[float] = []
    queued: deque[tuple[torch.cuda.Event, torch.cuda.Event]] = deque()
    with torch.cuda.device(device):
        for _ in range(repeats):
            action()
        torch.cuda.synchronize()
        end = time.perf_counter() + seconds
        while len(durations) < MIN_SAMPLES or time.perf_counter() < end:
            start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            for _ in range(repeats):
                action()
            stop.record()
            queued.append((start, stop))
            if len(queued) > 1:
                durations.append(finish(queued.popleft()) / repeats)
        while queued:
            durations.append(finish(queued.popleft()) / repeats)
    return durations


def finish(marks: "tuple[torch.cuda.Event, torch.cuda.Event]") -> float:
    """Seconds between two events, once the second has come."""
    start, stop = marks
    stop.synchronize()
    return float(start.elapsed_time(stop)) / 1000
