"""torchrun, started as a scheduler starts it: cold, as a program; or warm, forked from us.

Importing torch and transformers takes seconds a process, several times what the short training takes. So torchrun's own
agent and the ranks that it starts are forked instead, unless a user's own training is drilled. They are the same agent,
the same ranks and the same restarts; only how a Python process comes to life differs. No process that forks may have
used a GPU: its driver does not survive that.
"""

import os
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

MONITOR_SECONDS = 0.1


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
        for pid in [*descendants(self.pid), self.pid] if self.poll() is None else []:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        while self.poll() is None:
            time.sleep(0.01)


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
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
