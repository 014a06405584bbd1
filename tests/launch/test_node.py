"""What each node starts, and with which code it ends."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seatrial.errors import SettingsError, UsageError
from seatrial.launch.node import Node, code_for_scheduler, find_node, plan_work, torchrun
from seatrial.rundir import RunDir
from seatrial.stop import STEPS_UNTIL_ALL_SAVE
from tests.small import settings_for, write_config, write_model, write_rows

TWO = {
    "PET_NNODES": "2",
    "PET_NPROC_PER_NODE": "8",
    "PET_NODE_RANK": "1",
    "PET_MASTER_ADDR": "a",
    "PET_MASTER_PORT": "7",
}


@pytest.mark.parametrize(
    ("environment", "node"),
    [
        ({}, Node()),
        ({"PET_NNODES": "1", "PET_NPROC_PER_NODE": "8"}, Node(processes=8)),
        (TWO, Node(rank=1, nodes="2", processes=8, address="a", port=7)),
        ({"PET_NNODES": "1:4", "PET_RDZV_ENDPOINT": "a:7"}, Node(nodes="1:4")),
    ],
)
def test_a_node_finds_its_place(environment: dict[str, str], node: Node) -> None:
    assert find_node(environment) == node


@pytest.mark.parametrize("missing", ["PET_NODE_RANK", "PET_MASTER_ADDR"])
def test_half_a_place_is_refused(missing: str) -> None:
    with pytest.raises(UsageError, match=missing):
        find_node({name: value for name, value in TWO.items() if name != missing})


def test_no_number_is_refused() -> None:
    with pytest.raises(UsageError, match="PET_NNODES=two: expected a number"):
        find_node({**TWO, "PET_NNODES": "two"})


def test_many_nodes_are_told_apart_by_rank_alone() -> None:
    first, second = (torchrun(find_node({**TWO, "PET_NODE_RANK": rank}), {}) for rank in "01")
    assert set(first) ^ set(second) == {"--node-rank=0", "--node-rank=1"}
    assert "--max-restarts=0" in first


def test_elastic_nodes_are_restarted_by_torchrun() -> None:
    node = Node(nodes="1:4")
    assert any(word.startswith("--rdzv-conf=") for word in torchrun(node, {}))
    given = torchrun(node, {"PET_RDZV_CONF": "join_timeout=9", "PET_MAX_RESTARTS": "4"})
    assert "--max-restarts=4" in given
    assert not any(word.startswith("--rdzv-conf=") for word in given)


@pytest.mark.parametrize(
    ("verb", "arguments", "first", "other"),
    [
        ("eval", ["--suite", "s", "run"], ["-m", "seatrial", "eval", "--suite", "s", "run"], None),
        ("accept", [], ["-m", "seatrial", "accept"], ["-m", "seatrial", "accept"]),
        ("command", ["a b", "$c"], ["a b", "$c"], ["a b", "$c"]),
    ],
)
def test_who_does_what(verb: str, arguments: list[str], first: list[str], other: list[str] | None) -> None:
    for rank, expected in ((0, first), (1, other)):
        work = plan_work(verb, arguments, Node(rank=rank, nodes="2", address="a"), {})
        found = [word for word in work.argv if word != sys.executable] if work is not None else None
        assert found == expected


def test_the_first_node_gives_the_verdict_of_all() -> None:
    first, other = (plan_work("accept", [], Node(rank=rank, nodes="2", address="a"), {}) for rank in (0, 1))
    assert first is not None
    assert other is not None
    assert (first.hidden_codes, other.hidden_codes) == ((), (1, 3))
    assert other.environment["RANK"] == "1"


def test_wrong_settings_are_refused_before_torchrun(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("run: {dri: x}\n")
    with pytest.raises(SettingsError, match=r"did you mean run\.dir"):
        plan_work("train", [str(tmp_path / "wrong.yaml")], Node(), {})


def test_a_scheduler_that_knows_one_code_is_told_it() -> None:
    told = {"SEATRIAL_RETRY_CODE": "138"}
    assert [code_for_scheduler(code, told) for code in (0, 2, 70, 75, 76, 78, 137)] == [0, 2, 138, 138, 76, 78, 137]
    assert code_for_scheduler(75, {}) == 75


def node(*arguments: str, **environment: str) -> "subprocess.Popen[str]":
    plain = {name: value for name, value in os.environ.items() if not name.startswith("PET_")}
    argv = [sys.executable, "-m", "seatrial.launch.node", *arguments]
    return subprocess.Popen(argv, env={**plain, **environment}, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize(("script", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("exit 0", 0)])
def test_a_command_keeps_its_code(script: str, code: int) -> None:
    with node("command", "sh", "-c", script) as process:
        assert process.wait(30) == code


def test_a_command_that_is_asked_to_stop(tmp_path: Path) -> None:
    with node("command", "sh", "-c", f"touch {tmp_path}/began; exec sleep 60") as process:
        while not (tmp_path / "began").exists():
            time.sleep(0.02)
        process.send_signal(signal.SIGUSR1)
        assert process.wait(30) == 75


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("node")
    write_model(folder / "model")
    write_rows(folder / "data", rows=8)
    settings = settings_for(folder, optimizer={"steps": 60, "packs_per_step": 2}, checkpoint={"every_steps": 1000})
    return write_config(settings, folder / "config.yaml")


def until_a_step(run: RunDir, steps: int, processes: list["subprocess.Popen[str]"]) -> None:
    deadline = time.monotonic() + 120
    while len(run.read_metrics()) < steps:
        assert time.monotonic() < deadline, "no step"
        assert all(process.poll() is None for process in processes)
        time.sleep(0.1)


def test_two_nodes_save_when_one_is_asked_and_go_on_to_the_end(config: Path) -> None:
    """Only the second is told to stop: both end with 75. The same commands finish."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    run = RunDir(config.parent / "run")

    def start(rank: int) -> "subprocess.Popen[str]":
        place = {**TWO, "PET_NPROC_PER_NODE": "1", "PET_NODE_RANK": str(rank), "PET_MASTER_ADDR": "127.0.0.1"}
        return node("train", str(config), **{**place, "PET_MASTER_PORT": str(port)})

    nodes = [start(0), start(1)]
    until_a_step(run, STEPS_UNTIL_ALL_SAVE, nodes)
    nodes[1].send_signal(signal.SIGUSR1)
    assert [process.wait(120) for process in nodes] == [75, 75]
    nodes = [start(0), start(1)]
    codes = [process.wait(120) for process in nodes]
    outcome = run.read_outcome()
    assert outcome is not None
    assert (codes, outcome["status"]) == ([0, 0], "done"), outcome


def test_a_mistake_is_not_tried_again(config: Path) -> None:
    """The directory belongs to a run with other settings: ranks say so, and nobody starts them again."""
    with node("train", str(config), "optimizer.steps=70") as process:
        assert process.wait(60) == 2
        assert process.stderr is not None
        assert "starting again" not in process.stderr.read()
