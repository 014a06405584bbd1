"""Trainings in worlds of several sizes, each a real group of processes, forked from one that has imported everything.

python -m tests.worlds JSON, with JSON a list of objects: ``config`` (a settings file), ``processes``, and optionally
``kill_at``: the first process kills itself, by SIGKILL, when it has written the record of that step; ``fails``: the
training is to end with an error.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from seatrial.records import read_jsonl

Breaking = Callable[[dict[str, Any]], None]
"""What a process does to itself before it trains, given the object of its training."""


def run_worlds(trainings: Sequence[dict[str, Any]], *, module: str = "tests.worlds") -> None:
    """Run them one after another in a process of its own; fails where one ends otherwise than it should."""
    done = subprocess.run(
        [sys.executable, "-m", module, json.dumps(list(trainings), default=str)],
        capture_output=True,
        text=True,
        timeout=900,  # others may share the machine
        check=False,
    )
    assert done.returncode == 0, done.stderr[-6000:]


def main(breaking: Breaking | None = None) -> None:
    # The processes are forked from this one, which must not have computed anything: threads do not survive a fork.
    import seatrial.train.loop  # noqa: F401

    for training in json.loads(sys.argv[1]):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        start = partial(_train, training, port, breaking)
        codes = _together([_forked(start, rank) for rank in range(training["processes"])])
        ended_well = all(code == 0 for code in codes)
        shall = training.get("kill_at") is None and not training.get("fails")
        assert ended_well == shall, f"{training}: {codes}"


def _train(training: dict[str, Any], port: int, breaking: Breaking | None, rank: int) -> None:
    import torch

    from seatrial.settings import TrainSettings, load_settings
    from seatrial.train.loop import train

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "LOCAL_RANK": str(rank)}
    os.environ["WORLD_SIZE"] = str(training["processes"])
    torch.set_num_threads(1)
    settings = load_settings(Path(training["config"]), (), TrainSettings)
    kill_at = training.get("kill_at")
    if rank == 0 and kill_at is not None:
        threading.Thread(target=_kill_at, args=(settings.run.dir, kill_at), daemon=True).start()
    if breaking is not None:
        breaking(training)
    train(settings)


def _forked(process: Callable[[int], None], rank: int) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        process(rank)
        code = 0
    except Exception as error:
        sys.stderr.write(f"rank {rank}: {type(error).__name__}: {error}\n")
        sys.stderr.flush()
    finally:
        os._exit(code)


def _together(pids: Sequence[int]) -> list[int]:
    """Wait for all; where one fails, the others are killed."""
    codes: dict[int, int] = {}
    while len(codes) < len(pids):
        for pid in set(pids) - codes.keys():
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                codes[pid] = os.waitstatus_to_exitcode(status)
                if codes[pid] < 0:
                    for other in set(pids) - codes.keys():
                        os.kill(other, signal.SIGKILL)
        time.sleep(0.005)
    return [codes[pid] for pid in pids]


def _kill_at(run: Path, step: int) -> None:
    while True:
        if any(record["step"] >= step for record in read_jsonl(run / "metrics.jsonl")):
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.002)


if __name__ == "__main__":
    main()
