"""A node leaves a job and comes back: two torchrun processes of this machine stand for two nodes."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from seatrial.dist.elastic import ENVIRONMENT, elastic_torchrun
from seatrial.rundir import RunDir

WORKER = "tests.dist.watchdog.worker"


def start_node(node: int, port: int, folder: Path) -> "subprocess.Popen[bytes]":
    _, *arguments = elastic_torchrun(
        least_nodes=1,
        most_nodes=2,
        processes=1,
        endpoint=f"127.0.0.1:{port}",
        job="test",
        restarts=2,
        hosts_store=node == 0,
    )
    with (folder / f"log-{node}").open("a") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.dist.launched", *arguments, "--", WORKER, str(folder), "5", "30"],
            stdout=log,
            stderr=log,
            env={**os.environ, **ENVIRONMENT},
        )


def wait_for(world_size: int, attempts: int, folder: Path) -> int:
    """Until the newest attempt, one after ``attempts``, has so many ranks; how many there were."""
    deadline = time.monotonic() + 90
    while time.monotonic() < deadline:
        starts = [event["world_size"] for event in RunDir(folder / "run").read_events() if event["event"] == "start"]
        if len(starts) > attempts and starts[-1] == world_size:
            return len(starts)
        time.sleep(0.05)
    raise AssertionError("".join((folder / f"log-{node}").read_text()[-2000:] for node in (0, 1)))


def test_a_node_is_killed_the_other_goes_on_and_it_joins_again(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    nodes = [start_node(node, port, tmp_path) for node in (0, 1)]
    try:
        attempts = wait_for(2, 0, tmp_path)
        nodes[1].kill()
        nodes[1].wait()
        attempts = wait_for(1, attempts, tmp_path)
        nodes[1] = start_node(1, port, tmp_path)
        wait_for(2, attempts, tmp_path)
        (tmp_path / "finish").touch()
        assert [node.wait(60) for node in nodes] == [0, 0]
    finally:
        for node in nodes:
            if node.poll() is None:
                node.kill()
            node.wait()
    outcome = RunDir(tmp_path / "run").read_outcome()
    assert outcome is not None
    assert outcome["status"] == "done"
