"""Ranks that train on this machine: each by itself first, then all together. What one could not do, it says."""

import json
import multiprocessing
import os
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seatrial.records import JsonObject, write_json

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerContext, SpawnContext
    from multiprocessing.process import BaseProcess

    from seatrial.dist.world import World

CPU_RANKS = 2
POLL_SECONDS = 0.05
LAST_WORDS_SECONDS = 10.0
COLLECTIVE_SECONDS = 120.0
"""In which a collective gives up: ranks reach the first one as far apart as their compilers are slow."""

Phase = Callable[["World"], JsonObject]
Work = Callable[[int, Path, Any], tuple[Phase, Phase]]
"""What a rank does alone and what together, from its number, a folder of its own and what the parent asks for. It runs
where ranks run: torch is imported there, not here."""


def train_on_ranks(work: Work, ranks: int, asked: object, *, on_gpus: bool, seconds: float) -> list[JsonObject]:
    """``{"alone": ..., "together": ...}`` of each rank, or as much of it as came, with ``error`` for the rest.

    Together only when all were sound alone. Nobody is waited for longer than ``seconds``, less what it takes to say so.
    """
    context = _context(on_gpus)
    with tempfile.TemporaryDirectory(prefix="seatrial-training-") as name:
        folder, port = Path(name), _free_port()
        processes = [
            context.Process(target=_rank, args=(rank, ranks, work, asked, port, folder)) for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        _wait(processes, folder, time.monotonic() + seconds - LAST_WORDS_SECONDS)
        hung = [process.is_alive() for process in processes]
        for process in processes:
            process.kill()
            process.join()
        return [_told(folder, rank, hung[rank], process.exitcode) for rank, process in enumerate(processes)]


def _context(on_gpus: bool) -> "SpawnContext | ForkServerContext":
    """Ranks on processors are forked from a process that has imported everything and computed nothing, which spares a
    small machine most of the time; CUDA does not survive a fork."""
    if on_gpus:
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["seatrial.train.rehearsal"])
    return context


def _wait(processes: "Sequence[BaseProcess]", folder: Path, end: float) -> None:
    """Until all have ended, or nobody is worth waiting for: for a rank that was killed we tell the others, and those
    that wait for it in a collective get no answer any more."""
    while any(process.is_alive() for process in processes) and time.monotonic() < end:
        for rank, process in enumerate(processes):
            if process.exitcode and "error" not in (told := _told(folder, rank, False, None)):
                if "alone" in told:
                    end = min(end, time.monotonic() + LAST_WORDS_SECONDS)
                write_json(folder / f"told-{rank}.json", _told(folder, rank, False, process.exitcode))
        time.sleep(POLL_SECONDS)


def _told(folder: Path, rank: int, hung: bool, code: int | None) -> JsonObject:
    file = folder / f"told-{rank}.json"
    told: JsonObject = json.loads(file.read_text()) if file.exists() else {}
    if (hung or code) and "error" not in told:
        phase = "together" if "alone" in told else "alone"
        told["error"] = f"hung while it trained {phase}" if hung else f"ended with code {code} while it trained {phase}"
    return told


def _rank(rank: int, ranks: int, work: Work, asked: object, port: int, folder: Path) -> None:
    told: JsonObject = {}
    file = folder / f"told-{rank}.json"
    try:
        own = folder / f"rank-{rank}"
        own.mkdir()
        alone, together = work(rank, own, asked)
        with _world(rank, 1, 0, port) as world:
            told["alone"] = alone(world)
        write_json(file, told)
        if ranks > 1 and _all_sound(folder, ranks):
            with _world(rank, ranks, rank, port) as world:
                told["together"] = together(world)
    except Exception as error:  # whatever keeps a rank from training is what it has to say
        told["error"] = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
    write_json(file, told)


@contextmanager
def _world(local_rank: int, size: int, rank: int, port: int) -> "Iterator[World]":
    """Join as torchrun's workers do; a world of one needs nobody's address."""
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), "")
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size)}
    os.environ |= {"LOCAL_RANK": str(local_rank), "LOCAL_WORLD_SIZE": str(size)}
    os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)  # gloo else resolves the host's name
    if size > 1:
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    import torch
    import torch.distributed as dist

    from seatrial.dist.world import joined_world

    torch.set_num_threads(1)
    with joined_world(timeout_seconds=COLLECTIVE_SECONDS) as world:
        yield world
        dist.barrier()  # the first rank keeps the store that others may still be joining through


def _all_sound(folder: Path, ranks: int) -> bool:
    """Wait until everybody was alone, and say whether all can go on. The parent's patience ends the wait."""
    told: Sequence[JsonObject] = ()
    while len(told) < ranks:
        time.sleep(POLL_SECONDS)
        told = [json.loads(file.read_text()) for file in folder.glob("told-*.json")]
    return not any("error" in one for one in told)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
