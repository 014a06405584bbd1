"""Collectives on ranks that are processes of this machine: started, checked for exact results, and timed.

Shapes: buffer_N is a flat fp32 buffer of N elements on one rank, part_P one of its P = N / ranks element shares.
"""

import os
import re
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from seatrial.accept.check import MIN_SAMPLES
from seatrial.accept.facts import Facts
from seatrial.hardware import GB

if TYPE_CHECKING:
    import torch

Collective = Literal["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"]
Backend = Literal["gloo", "nccl"]
Step = tuple[Collective, int]
"""A collective and its size in bytes, counted as nccl-tests does."""

WARM_UP = 5
MAX_REPEATS = 2000
TIMEOUT = timedelta(seconds=60)


def busbw_gb_per_s(collective: Collective, size_bytes: int, seconds: float, ranks: int) -> float:
    """Bus bandwidth, comparable between collectives and numbers of ranks (nccl-tests doc/PERFORMANCE.md).

    ``size_bytes`` is the rank's whole buffer; for all_gather its output, for reduce_scatter its input.
    """
    share = (ranks - 1) / ranks
    factor = {"all_reduce": 2 * share, "broadcast": 1.0}.get(collective, share)
    return size_bytes / seconds * factor / GB


class StepFacts(Facts):
    """``seconds``: per repeat, the slowest rank. ``wrong``: elements that are not exact, over all ranks."""

    collective: Collective
    size_bytes: int
    seconds: tuple[float, ...]
    wrong: int


class NcclChoice(Facts):
    """What NCCL chose, by its own log: transports between ranks, and the algorithm by collective and bytes."""

    transports: tuple[str, ...]
    algorithms: dict[str, str]


def read_nccl_log(log: str) -> NcclChoice:
    """``... via P2P/CUMEM/read`` of each channel, and ``AllReduce: 4096 Bytes -> Algo RING proto LL ...``."""
    transports = set(re.findall(r"Channel \d+(?:/\d+)? : .* via (NET/\w+|\w+)", log))
    chosen = re.findall(r"(\w+): (\d+) Bytes -> Algo (\w+) proto \w+", log)
    return NcclChoice(
        transports=tuple(sorted(transports)),
        algorithms={f"{function} {size}": algorithm.upper() for function, size, algorithm in chosen},
    )


def run_on_ranks(
    backend: Backend, ranks: int, steps: Sequence[Step], seconds: float
) -> tuple[tuple[StepFacts, ...], NcclChoice]:
    """Start the ranks, take every step on all of them, and return what rank 0 gathered and NCCL logged.

    Raises: whatever stopped the first rank that failed, as torch.multiprocessing reports it.
    """
    from torch.multiprocessing.spawn import spawn

    with tempfile.TemporaryDirectory(prefix="seatrial-ranks-") as scratch:
        spawn(_rank, args=(backend, ranks, tuple(steps), seconds / len(steps), scratch), nprocs=ranks, join=True)
        lines = (Path(scratch) / "steps.jsonl").read_text().splitlines()
        logs = "".join(path.read_text(errors="replace") for path in Path(scratch).glob("nccl-*.log"))
    return tuple(StepFacts.model_validate_json(line) for line in lines), read_nccl_log(logs)


def _rank(rank: int, backend: Backend, ranks: int, steps: tuple[Step, ...], seconds: float, scratch: str) -> None:
    """One rank. Every collective below is entered by all ranks."""
    _set_environment(backend, f"{scratch}/nccl-{rank}.log")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    rendezvous = f"file://{scratch}/rendezvous"
    dist.init_process_group(backend, init_method=rendezvous, rank=rank, world_size=ranks, timeout=TIMEOUT)
    try:
        for collective, size_bytes in steps:
            found = _take_step(collective, size_bytes, device, seconds)
            if rank == 0:
                with (Path(scratch) / "steps.jsonl").open("a") as file:
                    file.write(found.model_dump_json() + "\n")
    finally:
        dist.destroy_process_group()


def _set_environment(backend: Backend, log: str) -> None:
    if backend == "nccl":
        os.environ |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,TUNING", "NCCL_DEBUG_FILE": log}
        return
    # Gloo else resolves the host's name, which many containers cannot.
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    if loopback:
        os.environ["GLOO_SOCKET_IFNAME"] = loopback


def _take_step(collective: Collective, size_bytes: int, device: "torch.device", seconds: float) -> StepFacts:
    import torch
    import torch.distributed as dist

    rank, ranks = dist.get_rank(), dist.get_world_size()
    elements = size_bytes // 4 if collective == "all_reduce" else size_bytes // 4 // ranks * ranks
    buffer_N = torch.empty(elements, device=device)
    part_P = torch.empty(0 if collective == "all_reduce" else elements // ranks, device=device)
    received_N = torch.empty(elements if collective == "all_to_all" else 0, device=device)
    call: Callable[[], object] = {
        "all_reduce": lambda: dist.all_reduce(buffer_N),
        "all_gather": lambda: dist.all_gather_into_tensor(buffer_N, part_P),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(part_P, buffer_N),
        "all_to_all": lambda: dist.all_to_all_single(received_N, buffer_N),
        "broadcast": lambda: dist.broadcast(buffer_N, src=0),
    }[collective]
    wrong = torch.tensor([_wrong_elements(collective, call, buffer_N, part_P, received_N, rank, ranks)], device=device)
    dist.all_reduce(wrong)
    _time(call, buffer_N, WARM_UP)
    # The number of repeats is fixed from one timed round that all ranks agree on, so that all make as many calls.
    pace = torch.tensor([max(_time(call, buffer_N, 3))], device=device)
    dist.all_reduce(pace, op=dist.ReduceOp.MAX)
    durations = torch.tensor(
        _time(call, buffer_N, int(min(max(seconds / pace.item(), MIN_SAMPLES), MAX_REPEATS))), device=device
    )
    dist.all_reduce(durations, op=dist.ReduceOp.MAX)
    return StepFacts(
        collective=collective, size_bytes=elements * 4, seconds=tuple(durations.tolist()), wrong=int(wrong.item())
    )


def _wrong_elements(
    collective: Collective,
    call: Callable[[], object],
    buffer_N: "torch.Tensor",
    part_P: "torch.Tensor",
    received_N: "torch.Tensor",
    rank: int,
    ranks: int,
) -> int:
    """Elements of the result that differ from the expected small integers, which fp32 holds exactly."""
    import torch

    def contribution(first: int, count: int, of_rank: int) -> "torch.Tensor":
        """Integers 0 to 250 by position and rank; 251 is prime, so that no period meets the size of a chunk."""
        position = torch.arange(first, first + count, dtype=torch.int32, device=buffer_N.device).remainder_(251)
        return position.mul_(of_rank + 1).add_(31 * of_rank).remainder_(251)

    elements, share = len(buffer_N), len(part_P)
    if collective == "all_gather":
        part_P.copy_(contribution(rank * share, share, rank))
    else:
        buffer_N.copy_(contribution(0, elements, rank))
    call()
    if collective == "all_reduce":
        return _differing(buffer_N, _total(contribution, 0, elements, ranks))
    if collective == "reduce_scatter":
        return _differing(part_P, _total(contribution, rank * share, share, ranks))
    if collective == "broadcast":
        return _differing(buffer_N, contribution(0, elements, 0))
    result, first = (buffer_N, None) if collective == "all_gather" else (received_N, rank * share)
    return sum(
        _differing(block, contribution(other * share if first is None else first, share, other))
        for other, block in enumerate(result.split(share))
    )


def _total(
    contribution: "Callable[[int, int, int], torch.Tensor]", first: int, count: int, ranks: int
) -> "torch.Tensor":
    total = contribution(first, count, 0)
    for other in range(1, ranks):
        total += contribution(first, count, other)
    return total


def _differing(found: "torch.Tensor", expected: "torch.Tensor") -> int:
    import torch

    return int(torch.ne(found, expected).sum())


def _time(call: Callable[[], object], buffer_N: "torch.Tensor", repeats: int) -> list[float]:
    """Seconds of each call: by events on the stream on a GPU, by the clock otherwise."""
    import torch

    if buffer_N.device.type == "cuda":
        marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
        for start, stop in marks:
            buffer_N.fill_(1.0)  # sums of sums would overflow
            start.record()
            call()
            stop.record()
        torch.cuda.synchronize()
        return [float(start.elapsed_time(stop)) / 1000 for start, stop in marks]
    seconds = []
    for _ in range(repeats):
        buffer_N.fill_(1.0)
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return seconds
