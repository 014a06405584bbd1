"""torchrun, started as a scheduler starts it: cold, as a program; or warm, forked from us.

Importing torch and transformers takes seconds a process, several times what the short training takes. So torchrun's own
agent and the ranks that it starts are forked instead, unless a user's own training is drilled. They are the same agent,
the same ranks and the same restarts; only how a Python process comes to life differs. No process that forks may have
used a GPU: its driver does not survive that.
"""

import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from seatrial.dist.orphan import die_with
from seatrial.drill.acts import descendants
from seatrial.errors import SeatrialError
from seatrial.stop import SIGNALS

MONITOR_SECONDS = 0.1

_PORTS = range(12000, 30000)


@dataclass
class Agent:
    """torchrun on one node."""

    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        """Its exit code, negative for a signal, once it has ended."""
        if self.returncode is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            if ended:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def kill(self) -> None:
        """It and all that it has started."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGSTOP)  # it would start again what we kill
            _kill([*descendants(self.pid), self.pid])
        while self.poll() is None:
            time.sleep(0.01)


def await_end(folder: Path, seconds: float) -> None:
    """Until no process of a trial is left: watchdogs outlive their ranks, to say what became of them."""
    deadline = time.monotonic() + seconds
    while _processes_of(folder) and time.monotonic() < deadline:
        time.sleep(0.02)


def end_all(folder: Path) -> None:
    """Kill what is left of a trial, which all has its directory in the command line, or an ancestor that has ended."""
    _kill(_processes_of(folder))


def _processes_of(folder: Path) -> list[int]:
    name = os.fsencode(f"{folder}/")
    found = []
    for process in Path("/proc").iterdir():
        if process.name.isdecimal() and int(process.name) != os.getpid():
            with suppress(OSError):  # it has ended meanwhile
                if name in (process / "cmdline").read_bytes():
                    found.append(int(process.name))
    return found


def _kill(pids: Sequence[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def torchrun_arguments(
    processes: int, *, restarts: int, node: int = 0, nodes: int = 1, address: str = "127.0.0.1", port: int = 0
) -> list[str]:
    """What torchrun is told, before the module."""
    told = [f"--nproc-per-node={processes}", f"--max-restarts={restarts}", f"--monitor-interval={MONITOR_SECONDS}"]
    if nodes == 1:
        return [*told, "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", f"--rdzv-id={os.getpid()}"]
    return [*told, f"--nnodes={nodes}", f"--node-rank={node}", f"--master-addr={address}", f"--master-port={port}"]


def start(
    arguments: Sequence[str], module: Sequence[str], log: Path, *, warm: bool, prefix: Sequence[str] = ()
) -> Agent:
    """Start an agent whose ranks run ``python -m MODULE ...``.

    Args:
        warm: fork; else a program is started, after ``prefix`` (which may bring it into a network namespace).
    """
    with log.open("ab") as output:
        if not warm:
            argv = [*prefix, sys.executable, "-m", "torch.distributed.run", *arguments, "-m", *module]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            process = subprocess.Popen(
                argv, stdout=output, stderr=subprocess.STDOUT, env=environment, start_new_session=True
            )
            return Agent(process.pid)
        parent, pid = os.getpid(), os.fork()
        if pid:
            return Agent(pid)
        code = 1
        try:
            for number in SIGNALS:  # ours are the drill's
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            die_with(parent)
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            _be_agent(arguments, module)
            code = 0
        except SystemExit as error:
            code = error.code if isinstance(error.code, int) else 1
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
        finally:
            os._exit(code)


def import_everything() -> None:
    """What a rank would import. Nothing may be computed before the fork: threads do not survive it."""
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # whether there is a GPU is asked without using it
    import seatrial.train.loop  # noqa: F401


def forks_can_use_gpus() -> bool:
    """Whether nothing that was imported has touched the driver. Some libraries do when they are imported."""
    pid = os.fork()
    if pid == 0:
        try:
            import torch

            torch.cuda.init()
            os._exit(0)
        except BaseException:  # only the answer may leave the child
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def _be_agent(arguments: Sequence[str], module: Sequence[str]) -> None:
    from torch.distributed.launcher.api import elastic_launch
    from torch.distributed.run import config_from_args, parse_args

    config, _, _ = config_from_args(parse_args([*arguments, "-m", *module]))
    config.start_method = "fork"
    elastic_launch(config, entrypoint=_be_rank)(list(module))


def _be_rank(module: list[str]) -> None:
    import torch

    from seatrial.drill import saboteur

    torch.set_num_threads(1)  # OMP_NUM_THREADS was read before the fork
    os.setsid()  # as torchrun starts a program
    assert module[0] == saboteur.__name__
    saboteur.main(module[1:])


def free_port() -> int:
    """One for the rendezvous of two nodes, below those that the system gives to whoever asks for any.

    Between this and its use nobody else takes it, but another drill that draws the same one.
    """
    for port in random.SystemRandom().sample(_PORTS, 100):
        with socket.socket() as listening, suppress(OSError):
            listening.bind(("127.0.0.1", port))
            return port
    raise SeatrialError(f"none of a hundred ports from {_PORTS.start} to {_PORTS.stop - 1} is free")
