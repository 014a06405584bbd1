"""The first thing that a node of a job does: is all here that its ranks will need?

What is wrong with a node is wrong before its GPUs have waited for it, and is told in words. The launcher tells a node
what to look for in one variable, since a node has no job file.
"""

import errno
import importlib.util
import os
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Literal

from seatrial.errors import SeatrialError
from seatrial.hardware import GIB, gpu_names
from seatrial.launch.job import Job
from seatrial.launch.preflight.finding import Finding, doubtful, failed, failures, passed
from seatrial.records import Frozen

NEEDS_VARIABLE = "SEATRIAL_NEEDS"
"""Holds :class:`Needs` as JSON. A node that was given none is not looked at."""

MODULES = ("torch", "transformers", "safetensors", "pydantic")
LEAST_SHM_GIB = 1.0
"""NCCL's buffers between the GPUs of a node take under a GiB; the 64 MiB that containers get by default fail it."""
LEAST_FREE_GIB = 1.0
FIRST_NODE_SECONDS = 600.0
"""How long the first node's name and machine are waited for: pods get theirs one by one, and images are pulled."""


class NeededMount(Frozen):
    path: Path
    kind: Literal["shared", "disk", "scratch"]


class Needs(Frozen):
    """What a node is looked at for.

    ``gpus`` 0: it runs on CPUs, or is to be accepted, which counts them itself. ``shm_gib`` None: what the host gives.
    """

    gpus: int
    mounts: tuple[NeededMount, ...] = ()
    run_dir: Path | None = None
    shm_gib: int | None = None

    @classmethod
    def of(cls, job: Job) -> "Needs":
        return cls(
            gpus=job.gpus_per_node if job.verb != "accept" else 0,
            mounts=tuple(NeededMount(path=Path(mount.path), kind=mount.kind) for mount in job.mounts),
            run_dir=Path(job.workdir, job.run_dir) if job.run_dir is not None and job.verb == "train" else None,
            shm_gib=job.shm_gib if job.venv is None else None,
        )


def check_node(environment: Mapping[str, str], say: Callable[[str], None]) -> tuple[Finding, ...]:
    """All that is wrong with this node, and what is right. Takes well under a second, unless node 0 is waited for.

    Args:
        environment: that of the node's process: ``PET_*`` and :data:`NEEDS_VARIABLE`.
        say: is told whom it waits for.
    """
    told = environment.get(NEEDS_VARIABLE)
    if told is None:
        return ()
    needs = Needs.model_validate_json(told)
    return (*_modules(), *_gpus(needs), *_shared_memory(needs), *_mounts(needs), *_first_node(environment, say))


def refuse_node(findings: tuple[Finding, ...]) -> None:
    """
    Raises:
        SeatrialError: what this node lacks, which another may have: the scheduler should try again.
    """
    if found := failures(findings):
        where = socket.gethostname()
        raise SeatrialError("\n".join(f"{where}: {one.what}: {one.reason}; {one.remedy}" for one in found))


def _modules() -> Iterator[Finding]:
    if missing := [name for name in MODULES if importlib.util.find_spec(name) is None]:
        remedy = "install seatrial into job.venv, or take an image that has it"
        yield failed("python", f"has no {', '.join(missing)}", remedy)
    else:
        yield passed("python", f"has {', '.join(MODULES)}")


def _gpus(needs: Needs) -> Iterator[Finding]:
    if needs.gpus:
        yield judge_gpus(gpu_names(), needs.gpus)


def judge_gpus(names: tuple[str, ...], wanted: int) -> Finding:
    """``names`` as nvidia-smi lists them."""
    if len(names) >= wanted:
        return passed("GPUs", f"{len(names)} x {names[0]}")
    remedy = "take the node out of service, or set job.gpus_per_node; `seatrial accept` says what it lacks"
    return failed("GPUs", f"nvidia-smi lists {len(names)} of {wanted}", remedy)


def _shared_memory(needs: Needs) -> Iterator[Finding]:
    memory = Path("/dev/shm")
    if needs.gpus and memory.is_dir():
        yield judge_shared_memory(shutil.disk_usage(memory).total / GIB, needs.shm_gib)


def judge_shared_memory(size_gib: float, asked_gib: int | None) -> Finding:
    remedy = "mount a memory-backed volume there (--shm-size, or emptyDir with medium: Memory) as job.shm_gib says"
    if size_gib < LEAST_SHM_GIB:
        return failed("/dev/shm", f"is {size_gib:.2g} GiB, too small for NCCL", remedy)
    if asked_gib is not None and size_gib < 0.95 * asked_gib:
        return doubtful("/dev/shm", f"is {size_gib:.3g} GiB, not job.shm_gib {asked_gib}", remedy)
    return passed("/dev/shm", f"is {size_gib:.3g} GiB")


def _mounts(needs: Needs) -> Iterator[Finding]:
    for mount in needs.mounts:
        yield check_directory(f"mount {mount.path}", mount.path)
    if needs.run_dir is not None:
        yield check_directory(f"run.dir {needs.run_dir}", first_existing(needs.run_dir))


def first_existing(path: Path) -> Path:
    """``path``, or the nearest directory above it that there is."""
    return next(place for place in (path, *path.parents) if place.is_dir())


def check_directory(what: str, directory: Path) -> Finding:
    """Whether a file can be made in it, and room is left."""
    if not directory.is_dir():
        return failed(what, "is not there", "mount it on the node, or correct job.mounts")
    try:
        with tempfile.NamedTemporaryFile(prefix=".seatrial-", dir=directory) as file:
            file.write(b"seatrial")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        remedy = "delete what is not needed any more" if full else f"let user {os.getuid()} write there"
        return failed(what, f"cannot be written: {error.strerror}", remedy)
    free_gib = shutil.disk_usage(directory).free / GIB
    if free_gib < LEAST_FREE_GIB:
        return failed(what, f"has {free_gib:.2g} GiB free", "delete what is not needed any more")
    return passed(what, f"can be written, {free_gib:.0f} GiB free")


def _first_node(environment: Mapping[str, str], say: Callable[[str], None]) -> Iterator[Finding]:
    address, port = environment.get("PET_MASTER_ADDR"), environment.get("PET_MASTER_PORT", "")
    if address is None or environment.get("PET_NNODES", "1") == "1" or not port.isdecimal():
        return
    if environment.get("PET_NODE_RANK", "0") == "0":
        yield _free_port(int(port))
    else:
        yield reach(address, int(port), FIRST_NODE_SECONDS, say)


def _free_port(port: int) -> Finding:
    what = f"port {port}"
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind(("", port))
        except OSError as error:
            return failed(what, f"cannot be listened on: {error.strerror}", "choose another PET_MASTER_PORT")
    return passed(what, "is free")


def reach(address: str, port: int, patience_seconds: float, say: Callable[[str], None]) -> Finding:
    """Whether packets come back from the first node. Nothing need listen there yet: to be refused is an answer."""
    what = f"first node {address}:{port}"
    start, said = time.monotonic(), False
    while True:
        try:
            socket.create_connection((address, port), timeout=5.0).close()
            return passed(what, "answers")
        except ConnectionRefusedError:
            return passed(what, "is there; nothing listens yet")
        except OSError as error:  # no such name yet, no route, or no answer
            why = error.strerror or str(error)
            if time.monotonic() - start > patience_seconds:
                remedy = "open the network between the nodes (security group, NetworkPolicy, firewall) and its DNS"
                return failed(what, f"cannot be reached: {why}", remedy)
            if not said:
                say(f"waiting for {what}: {why}")
                said = True
        time.sleep(1.0)
