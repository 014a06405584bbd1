"""All-reduce over the ranks of this machine: exact sums, bus bandwidth as nccl-tests defines it, and its tail.

Shapes: buffer_N is a flat fp32 buffer of N elements on one rank.
"""

import os
import platform
import socket
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from seatrial.accept import limits
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
from seatrial.hardware import GB
from seatrial.records import Frozen, Measurement, Verdict

if TYPE_CHECKING:
    import torch

MIB = 2**20
LOOPBACK_BYTES = (8, 4096, MIB, 16 * MIB)
WARM_UP = 5
MAX_SAMPLES = 2000
TIMEOUT = timedelta(seconds=60)


def all_reduce_busbw(size_bytes: int, seconds: float, ranks: int) -> float:
    """GB/s, comparable between numbers of ranks: bytes / seconds x 2 (n - 1) / n (nccl-tests doc/PERFORMANCE.md)."""
    return size_bytes / seconds * 2 * (ranks - 1) / ranks / GB


class SizeFacts(Frozen):
    """``seconds``: per repeat, the slowest rank. ``wrong``: elements that differ from the exact sum, over all ranks."""

    size_bytes: int
    seconds: tuple[float, ...]
    wrong: int


class AllReduceFacts(Frozen):
    backend: str
    ranks: int
    gpu: str | None
    multicast: bool
    sizes: tuple[SizeFacts, ...]


def measure_loopback(request: Request) -> AllReduceFacts:
    sizes = all_reduce_on_ranks("gloo", 2, LOOPBACK_BYTES, request.seconds)
    return AllReduceFacts(backend="gloo", ranks=2, gpu=None, multicast=False, sizes=sizes)


def all_reduce_on_ranks(
    backend: Literal["gloo", "nccl"], ranks: int, sizes: tuple[int, ...], seconds: float
) -> tuple[SizeFacts, ...]:
    """Start the ranks as processes of their own, run every size, and return what rank 0 gathered."""
    from torch.multiprocessing.spawn import spawn

    with tempfile.TemporaryDirectory(prefix="seatrial-ranks-") as scratch:
        arguments = (backend, ranks, sizes, seconds / len(sizes), scratch)
        spawn(_rank, args=arguments, nprocs=ranks, join=True)
        lines = (Path(scratch) / "sizes.jsonl").read_text().splitlines()
    return tuple(SizeFacts.model_validate_json(line) for line in lines)


def _rank(rank: int, backend: str, ranks: int, sizes: tuple[int, ...], seconds_per_size: float, scratch: str) -> None:
    """One rank. Every collective below is entered by all ranks."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    else:
        _use_loopback()
    rendezvous = f"file://{scratch}/rendezvous"
    dist.init_process_group(backend, init_method=rendezvous, rank=rank, world_size=ranks, timeout=TIMEOUT)
    try:
        for size_bytes in sizes:
            found = _one_size(size_bytes, device, rank, ranks, seconds_per_size)
            if rank == 0:
                with (Path(scratch) / "sizes.jsonl").open("a") as file:
                    file.write(found.model_dump_json() + "\n")
    finally:
        dist.destroy_process_group()


def _use_loopback() -> None:
    """Gloo else resolves the host's name, which many containers cannot."""
    names = {name for _, name in socket.if_nameindex()}
    loopback = next((name for name in ("lo", "lo0") if name in names), None)
    if loopback:
        os.environ["GLOO_SOCKET_IFNAME"] = loopback


def _one_size(size_bytes: int, device: "torch.device", rank: int, ranks: int, seconds: float) -> SizeFacts:
    import torch
    import torch.distributed as dist

    buffer_N = torch.empty(size_bytes // 4, device=device)
    wrong = torch.tensor([_wrong_elements(buffer_N, rank, ranks)], device=device)
    dist.all_reduce(wrong)
    for _ in range(WARM_UP):
        dist.all_reduce(buffer_N.fill_(1.0))
    # The number of repeats is fixed from one timed round that all ranks agree on, so that all make as many calls.
    pace = torch.tensor([max(_time_all_reduces(buffer_N, 3))], device=device)
    dist.all_reduce(pace, op=dist.ReduceOp.MAX)
    repeats = int(min(max(seconds / pace.item(), MIN_SAMPLES), MAX_SAMPLES))
    seconds_N = torch.tensor(_time_all_reduces(buffer_N, repeats), device=device)
    dist.all_reduce(seconds_N, op=dist.ReduceOp.MAX)
    return SizeFacts(size_bytes=size_bytes, seconds=tuple(seconds_N.tolist()), wrong=int(wrong.item()))


def _wrong_elements(buffer_N: "torch.Tensor", rank: int, ranks: int) -> int:
    """Elements of a sum of small integers, exact in fp32, that came out wrong on this rank."""
    import torch
    import torch.distributed as dist

    position_N = torch.arange(buffer_N.numel(), device=buffer_N.device)
    buffer_N.copy_(_contribution(position_N, rank))
    dist.all_reduce(buffer_N)
    expected_N = sum((_contribution(position_N, other) for other in range(ranks)), torch.zeros_like(position_N))
    return int(torch.ne(buffer_N, expected_N.to(buffer_N.dtype)).sum())


def _contribution(position_N: "torch.Tensor", rank: int) -> "torch.Tensor":
    """Integers from 0 to 250 that differ between ranks and positions; 251 is prime, so no period meets a chunk size."""
    return (position_N * (rank + 1) + 31 * rank) % 251


def _time_all_reduces(buffer_N: "torch.Tensor", repeats: int) -> list[float]:
    """Seconds of each all-reduce: by events on the stream on a GPU, by the clock otherwise."""
    import torch
    import torch.distributed as dist

    seconds = []
    if buffer_N.device.type == "cuda":
        marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(repeats)]
        for start, stop in marks:
            buffer_N.fill_(1.0)
            start.record()
            dist.all_reduce(buffer_N)
            stop.record()
        torch.cuda.synchronize()
        return [start.elapsed_time(stop) / 1000 for start, stop in marks]
    for _ in range(repeats):
        buffer_N.fill_(1.0)
        begin = time.perf_counter()
        dist.all_reduce(buffer_N)
        seconds.append(time.perf_counter() - begin)
    return seconds


def judge_loopback(facts: AllReduceFacts) -> Judgement:
    findings = judge_sums(facts)
    if facts.sizes and facts.ranks > 1:
        findings.append(judge_rate(limits.LOOPBACK_BUSBW, _busbw(facts, facts.sizes[-1]), platform.node()))
    return conclude(findings, all_reduce_measurements(facts))


def judge_sums(facts: AllReduceFacts) -> list[Finding]:
    """Sums must be exact, at every size."""
    if facts.ranks < 2 or not facts.sizes:
        return [(Verdict.INCONCLUSIVE, f"nothing was reduced over {facts.ranks} rank(s)")]
    findings: list[Finding] = []
    for size in facts.sizes:
        if len(size.seconds) < MIN_SAMPLES or not all(0 < s < float("inf") for s in size.seconds) or size.wrong < 0:
            findings.append((Verdict.INCONCLUSIVE, f"all-reduce of {size.size_bytes} B was not timed"))
        elif size.wrong:
            findings.append((Verdict.FAIL, f"all-reduce of {size.size_bytes} B: {size.wrong} sums are wrong"))
    return findings or [(Verdict.PASS, f"sums exact over {facts.ranks} {facts.backend} ranks")]


def all_reduce_measurements(facts: AllReduceFacts) -> list[Measurement]:
    """Bus bandwidth, median time and p99 time for each size."""
    numbers = []
    for size in facts.sizes:
        label, where = f"all-reduce {size.size_bytes} B", f"{platform.node()}, {facts.ranks} {facts.backend} ranks"
        numbers.append(measurement(f"{label} busbw", _busbw(facts, size), "GB/s", where))
        numbers.append(measurement(f"{label} time", size.seconds, "s", where))
        p99 = percentile(size.seconds, 99)
        numbers.append(
            Measurement(name=f"{label} p99", value=p99, unit="s", n=len(size.seconds), spread=0.0, where=where)
        )
    return numbers


def _busbw(facts: AllReduceFacts, size: SizeFacts) -> list[float]:
    return [all_reduce_busbw(size.size_bytes, seconds, facts.ranks) for seconds in size.seconds if seconds > 0]


CHECKS = (
    Check(
        name="collectives.loopback",
        question="Do two processes on this machine add up numbers exactly, through its own network stack?",
        remedy="check that the loopback interface is up and that no firewall or sandbox stands in its way",
        facts=AllReduceFacts,
        measure=measure_loopback,
        judge=judge_loopback,
        limits=(limits.LOOPBACK_BUSBW,),
        share=2.0,
    ),
)
