"""Two nodes, which are network namespaces of this machine; the link between them is cut, or one of them is lost."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.dist.heartbeat import RankBeats, read_local
from seatrial.dist.watchdog.process import LOOK_SECONDS
from seatrial.dist.watchdog.sight import process_state
from seatrial.dist.watchdog.verdict import SILENT_SECONDS
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


def launch(
    node: int, name: str, folder: Path, hang_seconds: float, timeout_seconds: float = TIMEOUT_SECONDS
) -> "subprocess.Popen[bytes]":
    static = ["--nnodes=2", f"--node-rank={node}", "--nproc-per-node=1", "--max-restarts=0"]
    master = ["--master-addr=10.231.7.1", "--master-port=29511"]
    command = [sys.executable, "-m", "tests.dist.launched", *static, *master, "--", WORKER, str(folder)]
    with (folder / f"log-{node}").open("w") as log:
        return subprocess.Popen(
            ["ip", "netns", "exec", name, *command, str(hang_seconds), str(timeout_seconds)],
            stdout=log,
            stderr=log,
            env={**os.environ, "GLOO_SOCKET_IFNAME": "eth0"},
        )


def under_way(run: RunDir) -> list[RankBeats]:
    """The ranks' heartbeats, once both nodes have told of them and it is known how long a step takes."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        beats = read_local(run.path, [0, 1])
        if len(beats) == 2 and all(run.node_report(node).exists() for node in (0, 1)):
            time.sleep(4 * LOOK_SECONDS)
            return beats
        time.sleep(0.05)
    raise AssertionError((run.path.parent / "log-0").read_text()[-2000:])


def await_end(rank: RankBeats) -> None:
    deadline = time.monotonic() + 15
    while process_state(rank.pid):
        assert time.monotonic() < deadline, "ranks of both nodes are ended"
        time.sleep(0.05)


@pytest.mark.parametrize("hang_seconds", [1.0, 600.0])
def test_a_cut_link_is_noticed_and_blamed_on_no_rank(nodes: list[str], tmp_path: Path, hang_seconds: float) -> None:
    """The watchdog notices first, or, where it must wait for longer, the collective that gives up does.

    Both nodes still reach the run directory, so that each hears that the other's ranks live and wait.
    """
    run = RunDir(tmp_path / "run")
    agents = [launch(node, name, tmp_path, hang_seconds) for node, name in enumerate(nodes)]
    beats = under_way(run)
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
        await_end(beat)
    for agent in agents:
        agent.wait(60)


def test_a_lost_node_is_noticed_and_named(nodes: list[str], tmp_path: Path) -> None:
    """The first one, with the store. No connection is closed, and collectives would wait for ten minutes."""
    run = RunDir(tmp_path / "run")
    agents = [launch(node, name, tmp_path, 1.0, timeout_seconds=600.0) for node, name in enumerate(nodes)]
    _, left = under_way(run)
    since = time.time()
    ip("-n", nodes[0], "link", "set", "eth0", "down")
    for pid in ip("netns", "pids", nodes[0]).stdout.split():
        os.kill(int(pid), signal.SIGKILL)
    await_end(left)
    for agent in agents:
        agent.wait(60)
    (said,) = (event for event in run.read_events() if event["event"] in ("stall", "fault"))
    assert said["time"] - since < SILENT_SECONDS + 5
    assert said["ranks"] == [0]
    assert "silent for 1" in said["reason"]
    outcome = run.read_outcome()
    assert outcome is not None
    assert (outcome["status"], outcome["reason"]) == ("failed", said["reason"])
