"""Collectives on ranks that are processes of this machine: started, checked for exact results, and timed.

Shapes: whole_N is a flat fp32 buffer of N elements on one rank, part_P one of its P = N / ranks element shares.
"""

import itertools
import math
import os
import socket
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Self

from seatrial.accept import nccl_log
from seatrial.accept.busbw import Collective
from seatrial.accept.check import MIN_SAMPLES
from seatrial.accept.facts import Facts
from seatrial.accept.nccl_log import NcclChoice, read_nccl_log

if TYPE_CHECKING:
    import torch

Backend = Literal["gloo", "nccl"]
Step = tuple[Collective, int]
"""A collective and its size in bytes, counted as nccl-tests does."""

WARM_UP = 5
MAX_CALLS = 1000
CALLS_IN_A_ROW = 20
"""A sample of a quick collective is the mean of so many calls, which is what nccl-tests times by default (-n 20)."""
SAMPLE_SECONDS = 1e-3
"""A sample that is as long needs no more calls: the microseconds that marking its end takes are under 1 % of it."""
CALLS_AHEAD = 100
HOLD_CYCLES = 20_000_000
"""A GPU is held for 10 ms, in which the processor queues CALLS_AHEAD calls at 20 to 50 microseconds each."""
TIMEOUT = timedelta(seconds=30)
"""In which a collective that waits for a rank gives up; the largest takes a second."""
LAST_WORDS_SECONDS = 5.0
"""From the first rank that gives up: the others that wait give up too, and the one that hangs does not."""


class StepFacts(Facts):
    """``seconds``: of a call, per sample, averaged over the ranks as nccl-tests does by default (-a 1): all wait for
    whoever is late. ``wrong``: elements not exact, over all ranks."""

    collective: Collective
    size_bytes: int
    seconds: tuple[float, ...]
    wrong: int


def run_on_ranks(
    backend: Backend, ranks: int, steps: Sequence[Step], seconds: float
) -> tuple[tuple[StepFacts, ...], NcclChoice]:
    """Start the ranks, take every step on all of them, and return what rank 0 gathered and NCCL logged.

    Raises:
        RuntimeError: a rank failed or hung; says which, as far as the others' last words tell.
    """
    from torch.multiprocessing.spawn import spawn

    with tempfile.TemporaryDirectory(prefix="seatrial-ranks-") as scratch:
        arguments = (backend, ranks, tuple(steps), seconds / len(steps), scratch)
        started = spawn(_rank, args=arguments, nprocs=ranks, join=False)
        try:
            while not started.join(grace_period=LAST_WORDS_SECONDS):
                pass
        except Exception as error:  # whatever torch.multiprocessing makes of a rank that failed or was killed
            words = {int(path.suffix[1:]): path.read_text() for path in Path(scratch).glob("gave-up.*")}
            raise RuntimeError(who_hung(words, ranks)) from error
        lines = (Path(scratch) / "steps.jsonl").read_text().splitlines()
        logs = "".join(path.read_text(errors="replace") for path in Path(scratch).glob("nccl-*.log"))
    return tuple(StepFacts.model_validate_json(line) for line in lines), read_nccl_log(logs)


def who_hung(gave_up: Mapping[int, str], ranks: int) -> str:
    """Who the others waited for, from what those said who gave up. Pure."""
    silent = [rank for rank in range(ranks) if rank not in gave_up]
    said = "; ".join(f"rank {rank} {text}" for rank, text in sorted(gave_up.items())[:2])
    if silent and gave_up:
        names = ", ".join(map(str, silent))
        return f"rank {names} hung or was killed, and the others waited in vain: {said}"
    return f"every rank gave up: {said}" if gave_up else "every rank was killed"


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
    at = "joining"
    try:
        for collective, size_bytes in steps:
            at = f"{collective} of {size_bytes} B"
            found = take_step(collective, size_bytes, device, seconds)
            if rank == 0:
                with (Path(scratch) / "steps.jsonl").open("a") as file:
                    file.write(found.model_dump_json() + "\n")
        dist.destroy_process_group()
    except Exception as error:
        told = str(error).splitlines()[0] if str(error) else type(error).__name__
        (Path(scratch) / f"gave-up.{rank}").write_text(f"in {at}: {told}")
        raise


def _set_environment(backend: Backend, log: str) -> None:
    if backend == "nccl":
        os.environ |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": nccl_log.SUBSYSTEMS, "NCCL_DEBUG_FILE": log}
        return
    # Gloo else resolves the host's name, which many containers cannot.
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), None)
    if loopback:
        os.environ["GLOO_SOCKET_IFNAME"] = loopback


def take_step(collective: Collective, size_bytes: int, device: "torch.device", seconds: float) -> StepFacts:
    import torch
    import torch.distributed as dist

    rank, ranks = dist.get_rank(), dist.get_world_size()
    buffers = Buffers.made(collective, size_bytes, ranks, device)
    call = calls(buffers, rank, ranks)[collective]
    wrong = torch.tensor([wrong_elements(collective, call, buffers, rank, ranks)], device=device)
    dist.all_reduce(wrong)
    _time(call, buffers, WARM_UP)
    # The number of calls is fixed from one timed round that all ranks agree on, so that all make as many.
    pace = torch.tensor([max(_time(call, buffers, 3))], device=device)
    dist.all_reduce(pace, op=dist.ReduceOp.MAX)
    in_a_row = calls_in_a_row(pace.item()) if device.type == "cuda" else 1
    samples = int(min(max(seconds / (pace.item() * in_a_row), MIN_SAMPLES), MAX_CALLS // in_a_row))
    durations = torch.tensor(_time(call, buffers, samples, in_a_row), device=device)
    dist.all_reduce(durations)
    return StepFacts(
        collective=collective,
        size_bytes=len(buffers.whole_N) * 4,
        seconds=tuple((durations / ranks).tolist()),
        wrong=int(wrong.item()),
    )


@dataclass(frozen=True)
class Buffers:
    """What a collective reads and writes; those that it does not need are empty."""

    whole_N: "torch.Tensor"
    part_P: "torch.Tensor"
    received_N: "torch.Tensor"

    @classmethod
    def made(cls, collective: Collective, size_bytes: int, ranks: int, device: "torch.device") -> Self:
        import torch

        in_parts = collective in ("all_gather", "reduce_scatter", "all_to_all")
        elements = size_bytes // 4 // ranks * ranks if in_parts else size_bytes // 4
        return cls(
            whole_N=torch.empty(elements, device=device),
            part_P=torch.empty(elements // ranks if in_parts else 0, device=device),
            received_N=torch.empty(elements if collective in ("all_to_all", "send_recv") else 0, device=device),
        )


def calls(buffers: Buffers, rank: int, ranks: int) -> dict[Collective, Callable[[], object]]:
    """How each collective is called. ``send_recv`` sends to the next rank and receives from the one before, at once."""
    import torch.distributed as dist

    def send_recv() -> None:
        pair = [
            dist.P2POp(dist.isend, buffers.whole_N, (rank + 1) % ranks),
            dist.P2POp(dist.irecv, buffers.received_N, (rank - 1) % ranks),
        ]
        for work in dist.batch_isend_irecv(pair):
            work.wait()

    return {
        "all_reduce": lambda: dist.all_reduce(buffers.whole_N),
        "all_gather": lambda: dist.all_gather_into_tensor(buffers.whole_N, buffers.part_P),
        "reduce_scatter": lambda: dist.reduce_scatter_tensor(buffers.part_P, buffers.whole_N),
        "all_to_all": lambda: dist.all_to_all_single(buffers.received_N, buffers.whole_N),
        "broadcast": lambda: dist.broadcast(buffers.whole_N, src=0),
        "send_recv": send_recv,
    }


COMPARED_AT_ONCE = 1 << 26
"""Elements: what is expected is computed piece by piece, so that buffers may fill most of the memory."""


def wrong_elements(collective: Collective, call: Callable[[], object], buffers: Buffers, rank: int, ranks: int) -> int:
    """Elements of the result that differ from the expected small integers, which fp32 holds exactly.

    What rank r contributes at position p is (p (r + 1) + 31 r) mod 251, so that every rank, position and order shows;
    251 is prime, so that no period meets the size of a chunk. Sums stay under 2^24 up to 66,000 ranks.
    """
    whole_N, part_P, received_N = buffers.whole_N, buffers.part_P, buffers.received_N
    share = len(part_P)
    everyone = range(ranks)
    if collective == "all_gather":
        _fill(part_P, rank * share, [rank])
    else:
        _fill(whole_N, 0, [rank])
    call()
    match collective:
        case "all_reduce":
            return _differing(whole_N, 0, everyone)
        case "reduce_scatter":
            return _differing(part_P, rank * share, everyone)
        case "broadcast":
            return _differing(whole_N, 0, [0])
        case "send_recv":
            return _differing(received_N, 0, [(rank - 1) % ranks])
        case "all_gather":
            return sum(_differing(block, r * share, [r]) for r, block in enumerate(whole_N.split(share)))
        case "all_to_all":
            return sum(_differing(block, rank * share, [r]) for r, block in enumerate(received_N.split(share)))


def _contributions(first: int, like: "torch.Tensor", of_ranks: Sequence[int]) -> "torch.Tensor":
    import torch

    start = first % 251
    position = torch.arange(start, start + len(like), dtype=torch.int32, device=like.device).remainder_(251)
    total = torch.zeros_like(position)
    for rank in of_ranks:
        total += (position * ((rank + 1) % 251)).add_(31 * rank % 251).remainder_(251)
    return total


def _fill(values: "torch.Tensor", first: int, of_ranks: Sequence[int]) -> None:
    for offset in range(0, len(values), COMPARED_AT_ONCE):
        piece = values[offset : offset + COMPARED_AT_ONCE]
        piece.copy_(_contributions(first + offset, piece, of_ranks))


def _differing(found: "torch.Tensor", first: int, of_ranks: Sequence[int]) -> int:
    import torch

    wrong = 0
    for offset in range(0, len(found), COMPARED_AT_ONCE):
        piece = found[offset : offset + COMPARED_AT_ONCE]
        wrong += int(torch.ne(piece, _contributions(first + offset, piece, of_ranks)).sum())
    return wrong


def calls_in_a_row(call_seconds: float) -> int:
    """Calls whose mean is one sample: as many as make it long enough to be timed to 1 %, as few as show the tail."""
    return min(max(math.ceil(SAMPLE_SECONDS / call_seconds), 1), CALLS_IN_A_ROW)


def _time(call: Callable[[], object], buffers: Buffers, samples: int, in_a_row: int = 1) -> list[float]:
    """Seconds of a call, once per sample: by events on the stream on a GPU, by the clock otherwise."""
    if buffers.whole_N.device.type == "cuda":
        at_once = max(CALLS_AHEAD // in_a_row, 1)
        rounds = [min(at_once, samples - first) for first in range(0, samples, at_once)]
        return [seconds for count in rounds for seconds in _time_queued(call, count, in_a_row)]
    seconds = []
    for _ in range(samples):
        buffers.whole_N.fill_(1.0)  # sums of sums would overflow
        begin = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - begin)
    return seconds


def _time_queued(call: Callable[[], object], samples: int, in_a_row: int) -> list[float]:
    """Seconds of a call, each sample the mean of ``in_a_row``, when the GPU makes one right after the other.

    That is what nccl-tests times: launches hide behind the calls before, and no rank comes late to one. Sums of sums
    overflow to infinity meanwhile, which takes no longer.
    """
    import torch

    marks = [torch.cuda.Event(enable_timing=True) for _ in range(samples + 1)]
    torch.cuda._sleep(HOLD_CYCLES)  # or the GPU would wait for the processor, and quick calls would take its time
    call()  # ends on all ranks at once, so that none is late for the first one that counts
    marks[0].record()
    for mark in marks[1:]:
        for _ in range(in_a_row):
            call()
        mark.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(stop) / 1000 / in_a_row for start, stop in itertools.pairwise(marks)]
