"""One rank: takes orders from the board, plays bouts and collectives, and posts how they went.

Every bout has process groups of its own, made from the board, so no rendezvous of the whole cluster is needed and a
dead node costs only its own bouts. Started as ``python -m seatrial.accept.cluster.member JSON``.
"""

import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from seatrial.accept import nccl_log
from seatrial.accept.checks import ranks
from seatrial.accept.cluster.board import Board, Unreachable
from seatrial.accept.training import rate
from seatrial.hardware import GB
from seatrial.records import Frozen, JsonObject

if TYPE_CHECKING:
    import torch

MIB = 2**20
PAYLOAD_BYTES = {"gloo": 2 * MIB, "nccl": 64 * MIB}
CALLS_A_REPEAT = {"gloo": 1, "nccl": 10}
GEMM_SIZE = 8192
POLL_SECONDS = 0.01


class Seat(Frozen):
    """Where a member sits. ``first_order``: those before it were for its predecessor, which died."""

    address: str
    port: int
    prefix: str
    node: int
    local: int
    backend: Literal["gloo", "nccl"]
    first_order: int = 0
    interface: str = ""
    log: str = ""


def main() -> None:
    serve(Seat.model_validate_json(sys.argv[1]))


def serve(seat: Seat) -> None:
    """Do what the board says until it says ``end``, or the process that started us is gone."""
    _prepare(seat)
    board = Board.at(seat.address, seat.port, host=False, prefix=seat.prefix, timeout_seconds=60)
    parent = os.getppid()
    number = seat.first_order
    while os.getppid() == parent:
        try:
            order = board.read(f"order/{number}")
            if order is None:
                time.sleep(POLL_SECONDS)
                continue
            if order["kind"] == "end":
                return
            answer = obey(seat, board, number, order)
            if answer is not None:
                board.post(f"done/{number}/{seat.node}/{seat.local}", answer)
        except Unreachable:
            return
        number += 1


def _prepare(seat: Seat) -> None:
    if seat.backend == "nccl":
        os.environ |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": nccl_log.SUBSYSTEMS, "NCCL_DEBUG_FILE": seat.log}
    elif seat.interface:
        os.environ["GLOO_SOCKET_IFNAME"] = seat.interface
    import torch

    torch.set_num_threads(1)
    if seat.backend == "nccl":
        torch.cuda.set_device(seat.local)


def obey(seat: Seat, board: Board, number: int, order: JsonObject) -> JsonObject | None:
    """Answer to one order; None when it is for others. What goes wrong is an answer too."""
    board.post(f"at/{seat.node}/{seat.local}", number)
    try:
        match order["kind"]:
            case "bout":
                pair = next((pair for pair in order["pairs"] if seat.node in pair), None)
                return None if pair is None else _bout(seat, board, number, order, pair)
            case "compute":
                return {"rates": compute(seat, order["repeats"])}
            case "collectives":
                group = next((group for group in order["groups"] if seat.node in group), None)
                return None if group is None else _collectives(seat, board, number, order, group)
            case "training":
                return _training(seat, board, number, order) if seat.node in order["nodes"] else None
    except Exception as error:  # the other end may have died, or the link: that is what the order asks
        return {"error": f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"}
    return {"error": f"unknown order {order['kind']}"}


def _bout(seat: Seat, board: Board, number: int, order: JsonObject, pair: list[int]) -> JsonObject:
    import torch

    device = torch.device("cuda", seat.local) if seat.backend == "nccl" else torch.device("cpu")
    whole_N = torch.empty(PAYLOAD_BYTES[seat.backend] // 4, device=device)
    with group(seat, board, f"{number}/{pair[0]}-{pair[1]}/{seat.local}", pair.index(seat.node), 2, order["seconds"]):
        wrong = ranks.wrong_elements(
            "all_reduce",
            lambda: exchange(seat, whole_N),
            ranks.Buffers(whole_N, whole_N[:0], whole_N[:0]),
            pair.index(seat.node),
            2,
        )
        rates = []
        for _ in range(order["repeats"]):
            whole_N.fill_(1.0)
            rates.append(whole_N.nbytes / _timed(seat, whole_N) / GB)
    return {"rates": rates, "wrong": wrong}


def exchange(seat: Seat, whole_N: "torch.Tensor") -> None:
    """Both ranks of a pair send and receive everything at once: among two, an all-reduce moves its size once."""
    import torch.distributed as dist

    dist.all_reduce(whole_N)


def _timed(seat: Seat, whole_N: "torch.Tensor") -> float:
    import torch

    calls = CALLS_A_REPEAT[seat.backend]
    if seat.backend == "nccl":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        exchange(seat, whole_N)
    if seat.backend == "nccl":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls


def compute(seat: Seat, repeats: int) -> list[float]:
    """TFLOP/s of bf16 products, all GPUs of all nodes at once."""
    import torch

    device = torch.device("cuda", seat.local)
    a, b = (torch.randn(GEMM_SIZE, GEMM_SIZE, device=device, dtype=torch.bfloat16) for _ in range(2))
    rates = []
    for repeat in range(-3, repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(50):
            a @ b
        torch.cuda.synchronize()
        if repeat >= 0:
            rates.append(50 * 2 * GEMM_SIZE**3 / (time.perf_counter() - start) / 1e12)
    return rates


def _collectives(seat: Seat, board: Board, number: int, order: JsonObject, nodes: list[int]) -> JsonObject:
    """Steps over all ranks of some nodes; the first rank of a group answers with what was timed."""
    import torch

    local_size = order["local_size"]
    rank = nodes.index(seat.node) * local_size + seat.local
    device = torch.device("cuda", seat.local) if seat.backend == "nccl" else torch.device("cpu")
    steps = order["steps"]
    log = Path(seat.log)
    told_before = log.stat().st_size if seat.log and log.exists() else 0
    with group(seat, board, f"{number}/{nodes[0]}", rank, len(nodes) * local_size, order["seconds"]):
        took = [
            ranks.take_step(collective, size, device, order["sampling_seconds"] / len(steps)).model_dump(mode="json")
            for collective, size in steps
        ]
    answer: JsonObject = {"steps": took if rank == 0 else []}
    if seat.backend == "nccl" and log.exists():
        chosen = nccl_log.read_nccl_log(log.read_bytes()[told_before:].decode(errors="replace"))
        answer["choice"] = chosen.model_dump(mode="json")
    return answer


def _training(seat: Seat, board: Board, number: int, order: JsonObject) -> JsonObject:
    """Steps over all ranks of some nodes; the first rank answers with what was timed."""
    import torch

    from seatrial.dist.world import World

    nodes, local_size = order["nodes"], order["local_size"]
    rank, size = nodes.index(seat.node) * local_size + seat.local, len(nodes) * local_size
    device = torch.device("cuda", seat.local) if seat.backend == "nccl" else torch.device("cpu")
    workload = rate.Workload.model_validate(order["workload"])
    with (
        group(seat, board, f"{number}/training", rank, size, order["seconds"]),
        tempfile.TemporaryDirectory(prefix="seatrial-training-") as folder,
    ):
        rehearsal = rate.prepared(workload, Path(folder), World(rank, size, device, local_size))
        told = rate.timed(rehearsal, workload.steps, warm_up=rate.WARM_UP_STEPS)
    return told if rank == 0 else {}


@contextmanager
def group(seat: Seat, board: Board, name: str, rank: int, size: int, seconds: float) -> Iterator[None]:
    """The process group of one bout; nobody waits in it longer than ``seconds``."""
    import torch.distributed as dist
    from torch._C._distributed_c10d import PrefixStore

    store = PrefixStore(f"group/{name}", board.store)
    timeout = timedelta(seconds=seconds)
    alarm = threading.Timer(2 * seconds, lambda: os._exit(74)) if seat.backend == "nccl" else None
    if alarm:  # NCCL may wait for a dead peer where no timeout reaches it
        alarm.daemon = True
        alarm.start()
    try:
        dist.init_process_group(seat.backend, store=store, rank=rank, world_size=size, timeout=timeout)
        yield
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
        if alarm:
            alarm.cancel()


def loopback_interface() -> str:
    """Its name here. Gloo else resolves the host's name, which many containers cannot."""
    return next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), "")


def argv(seat: Seat, module: str = "seatrial.accept.cluster.member") -> list[str]:
    return [sys.executable, "-m", module, json.dumps(seat.model_dump(mode="json"))]


if __name__ == "__main__":
    main()
