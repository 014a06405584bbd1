"""Two nodes, which are network namespaces of this machine, and the link between them is cut."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.dist.heartbeat import read_local
from seatrial.dist.watchdog.process import LOOK_SECONDS
from seatrial.dist.watchdog.sight import process_state
from seatrial.rundir import RunDir

WORKER = "tests.dist.watchdog.worker"
TIMEOUT_SECONDS = 6.0


def ip(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *words], capture_output=True, text=True, check=False)


@pytest.fixture
def nodes() -> Iterator[list[str]]:
    """Names of two namespaces, joined by a cable: 10.231.7.1 and 10.231.7.2."""
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and the command ip, for network namespaces")
    names = [f"st{os.getpid()}a", f"st{os.getpid()}b"]
    for name in names:
        if (made := ip("netns", "add", name)).returncode:
            pytest.skip(f"no network namespaces here: {made.stderr.strip()}")
    ip("link", "add", "eth0", "netns", names[0], "type", "veth", "peer", "name", "eth0", "netns", names[1])
    for number, name in enumerate(names, 1):
        ip("-n", name, "addr", "add", f"10.231.7.{number}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        ip("-n", name, "link", "set", "lo", "up")
    yield names
    for name in names:
        for pid in ip("netns", "pids", name).stdout.split():
            os.kill(int(pid), signal.SIGKILL)
        ip("netns", "del", name)


def launch(node: int, name: str, folder: Path, hang_seconds: float) -> "subprocess.Popen[bytes]":
    static = ["--nnodes=2", f"--node-rank={node}", "--nproc-per-node=1", "--max-restarts=0"]
    master = ["--master-addr=10.231.7.1", "--master-port=29511"]
    command = [sys.executable, "-m", "tests.dist.launched", *static, *master, "--", WORKER, str(folder)]
    with (folder / f"log-{node}").open("w") as log:
        return subprocess.Popen(
            ["ip", "netns", "exec", name, *command, str(hang_seconds), str(TIMEOUT_SECONDS)],
            stdout=log,
            stderr=log,
            env={**os.environ, "GLOO_SOCKET_IFNAME": "eth0"},
        )


@pytest.mark.parametrize("hang_seconds", [1.0, 600.0])
def test_a_cut_link_is_noticed_and_blamed_on_no_rank(nodes: list[str], tmp_path: Path, hang_seconds: float) -> None:
    """The watchdog notices first, or, where it must wait for longer, the collective that gives up does.

    Both nodes still reach the run directory, so that each hears that the other's ranks live and wait.
    """
    run = RunDir(tmp_path / "run")
    agents = [launch(node, name, tmp_path, hang_seconds) for node, name in enumerate(nodes)]
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        beats = read_local(run.path, [0, 1])
        if len(beats) == 2 and all(run.node_report(node).exists() for node in (0, 1)):
            break
        time.sleep(0.05)
    else:
        raise AssertionError((tmp_path / "log-0").read_text()[-2000:])
    time.sleep(4 * LOOK_SECONDS)  # how long a step takes is known then
    since = time.time()
    ip("-n", nodes[1], "link", "set", "eth0", "down")
    while not (said := [e for e in run.read_events() if e["event"] in ("stall", "fault")]):
        assert time.time() - since < TIMEOUT_SECONDS + 10
        time.sleep(0.05)
    assert said[0]["time"] - since < TIMEOUT_SECONDS + 5
    if hang_seconds < TIMEOUT_SECONDS:
        assert said[0]["event"] == "stall"
        assert "all 2 ranks wait in step" in said[0]["reason"]
        assert "a collective, and so a link" in said[0]["reason"]
    else:
        assert "Timed out" in said[0]["reason"] or "Connection" in said[0]["reason"], said
    for beat in beats:
        deadline = time.monotonic() + 15
        while process_state(beat.pid):
            assert time.monotonic() < deadline, "ranks of both nodes are ended"
            time.sleep(0.05)
    for agent in agents:
        agent.wait(60)
