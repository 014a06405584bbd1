"""This machine, looked at as a node."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.errors import SeatrialError
from seatrial.hardware import gpu_names
from seatrial.launch.preflight.node import (
    NEEDS_VARIABLE,
    Needs,
    check_directory,
    check_node,
    judge_gpus,
    judge_shared_memory,
    reach,
    refuse_node,
)
from tests.launch.preflight.jobs import FAIL, PASS, WARN, job


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield int(server.getsockname()[1])


def told(needs: Needs, **variables: str) -> dict[str, str]:
    return {NEEDS_VARIABLE: needs.model_dump_json(), **variables}


def test_a_node_that_was_told_nothing_is_not_looked_at() -> None:
    assert check_node({}, print) == ()


def test_needs_survive_the_way_to_the_node() -> None:
    needs = Needs.of(job(mounts=[{"path": "/mnt/data"}, {"path": "/scratch", "kind": "scratch"}], run_dir="runs/a"))
    assert Needs.model_validate_json(needs.model_dump_json()) == needs
    assert needs.run_dir == Path("/mnt/data/work/runs/a")
    assert (needs.gpus, needs.shm_gib) == (8, 64)
    assert Needs.of(job(venv="/mnt/data/venv")).shm_gib is None
    assert Needs.of(job(verb="accept")).gpus == 0


def test_a_sound_node(tmp_path: Path) -> None:
    needs = Needs.of(
        job(gpus_per_node=0, processes_per_node=2, mounts=[{"path": tmp_path}], run_dir=tmp_path / "runs" / "new")
    )
    findings = check_node(told(needs), print)
    assert [finding.verdict for finding in findings] == [PASS] * 3
    refuse_node(findings)
    assert list(tmp_path.iterdir()) == []  # looking leaves nothing


def test_all_that_a_node_lacks_is_said_at_once(tmp_path: Path) -> None:
    wanted = len(gpu_names()) + 1
    findings = check_node(told(Needs.of(job(gpus_per_node=wanted, mounts=[{"path": "/nosuch"}]))), print)
    assert {finding.what for finding in findings if finding.verdict is FAIL} == {"GPUs", "mount /nosuch"}
    with pytest.raises(SeatrialError, match="nvidia-smi lists") as error:
        refuse_node(findings)
    assert error.value.exit_code == 70  # another node may have what this one lacks
    assert socket.gethostname() in str(error.value)
    assert "/nosuch: is not there" in str(error.value)


def test_gpus_and_shared_memory_are_judged() -> None:
    assert judge_gpus(("NVIDIA H100 80GB HBM3",) * 8, 8).reason == "8 x NVIDIA H100 80GB HBM3"
    assert judge_gpus(("NVIDIA H100 80GB HBM3",) * 7, 8).verdict is FAIL
    assert judge_gpus((), 1).verdict is FAIL
    assert judge_shared_memory(0.0625, 64).verdict is FAIL  # what Docker gives by default
    assert judge_shared_memory(32.0, 64).verdict is WARN
    assert judge_shared_memory(64.0, 64).verdict is PASS
    assert judge_shared_memory(32.0, None).verdict is PASS


def test_a_file_system_that_refuses_files() -> None:
    finding = check_directory("mount /proc", Path("/proc"))  # to root as well
    assert finding.verdict is FAIL
    assert "cannot be written" in finding.reason


def first_node(port: int, rank: int) -> list[object]:
    variables = {"PET_NNODES": "2", "PET_NODE_RANK": str(rank), "PET_MASTER_ADDR": "127.0.0.1"}
    findings = check_node(told(Needs(gpus=0), **variables, PET_MASTER_PORT=str(port)), print)
    return [finding.verdict for finding in findings if str(port) in finding.what]


def test_the_port_of_the_first_node(listening: int) -> None:
    assert first_node(listening, rank=0) == [FAIL]
    assert first_node(listening, rank=1) == [PASS]


def test_the_first_node_need_not_listen_yet(listening: int) -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        free = int(server.getsockname()[1])
    assert first_node(free, rank=0) == [PASS]
    assert first_node(free, rank=1) == [PASS]


def test_a_first_node_that_nobody_knows() -> None:
    finding = reach("no-such-node.invalid", 29500, patience_seconds=0.0, say=print)
    assert finding.verdict is FAIL
    assert "DNS" in finding.remedy


def as_a_node(needs: Needs, *command: str, **variables: str) -> subprocess.Popen[str]:
    argv = [sys.executable, "-m", "seatrial.launch.node", "command", *command]
    environment = {**os.environ, **told(needs, **variables)}
    return subprocess.Popen(argv, env=environment, stderr=subprocess.PIPE, text=True)


def test_a_node_that_lacks_something_starts_nothing(tmp_path: Path) -> None:
    needs = Needs.of(job(gpus_per_node=0, processes_per_node=1, mounts=[{"path": "/nosuch"}]))
    node = as_a_node(needs, "touch", str(tmp_path / "started"))
    _, said = node.communicate(timeout=120)
    assert node.returncode == 70, said
    assert f"{socket.gethostname()}: mount /nosuch: is not there" in said
    assert not (tmp_path / "started").exists()


def test_a_node_that_waits_for_the_first_one_can_be_stopped() -> None:
    variables = {"PET_NNODES": "2", "PET_NPROC_PER_NODE": "1", "PET_NODE_RANK": "1", "PET_MASTER_PORT": "29500"}
    node = as_a_node(Needs(gpus=0), "true", PET_MASTER_ADDR="no-such-node.invalid", **variables)
    assert node.stderr is not None
    assert node.stderr.readline().startswith("node 1: waiting for first node no-such-node.invalid:29500: ")
    node.terminate()
    _, said = node.communicate(timeout=60)
    assert node.returncode == 75, said
