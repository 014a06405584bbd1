"""Of several reasons, which is the cause of the others; and whether what the first rank wrote down may stay."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch.distributed as dist

from seatrial.dist.heartbeat import heartbeat_directory
from seatrial.dist.watchdog.ending import Ending, is_true, of_death, of_error, of_silence, of_standstill
from seatrial.dist.watchdog.farewell import first_error, leave_error
from seatrial.dist.watchdog.verdict import Finding, RankView
from seatrial.errors import IntegrityError

GLOO = "[/src/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.7]:58246"


def view(rank: int, phase: str = "failed", state: str = "S") -> RankView:
    return RankView(rank, f"node-{rank // 4}", 1000 + rank, phase, 7, 0, 1.0, state)


@pytest.mark.parametrize(
    ("views", "launcher_is_gone", "what", "blamed"),
    [
        ([view(0, "load"), view(1, "load")], False, None, []),
        ([view(0, "load", ""), view(1, "load")], False, "killed", [0]),
        ([view(0, "load", ""), view(1, "load", "")], True, "launcher killed", []),
        ([view(0, "load"), view(1, "load")], True, "launcher killed", []),
        # torchrun told the other to stop, and has ended too, before anybody looked.
        ([view(0, "load", ""), view(1, "done", "")], True, "killed", [0]),
        # It ended because the training did.
        ([view(0, "done", ""), view(1, "done", "")], True, None, []),
        ([], True, "launcher killed", []),
    ],
)
def test_a_torchrun_that_ended_after_a_killed_rank_is_not_blamed(
    views: list[RankView], launcher_is_gone: bool, what: str | None, blamed: list[int]
) -> None:
    ending = of_death(views, "torchrun has ended" if launcher_is_gone else None)
    assert (ending and ending.what, ending.finding.ranks if ending else []) == (what, blamed)


def test_a_standstill_for_want_of_a_silent_node_is_that_nodes_loss() -> None:
    silent = [replace(view(rank, "step"), silent_seconds=20.0) for rank in (0, 1)]
    awake = view(4, "step")
    assert of_standstill(Finding("", tuple(silent))).what == "node silent"
    assert of_standstill(Finding("", (awake,))).event == "stall"
    assert of_standstill(Finding("", (*silent, awake))).event == "stall"
    assert of_standstill(Finding("all wait")).event == "stall"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    heartbeat_directory(tmp_path).mkdir()
    return tmp_path


def test_a_broken_connection_is_what_became_of_an_error(run: Path) -> None:
    leave_error(run, "1-aa", 0, RuntimeError(GLOO))
    first = first_error(run, "1-aa", range(4))
    assert first is not None
    ending = of_error([view(0)], first, time.monotonic())
    assert (ending.what, ending.is_echo, ending.finding.ranks) == ("connection lost", True, [0])
    leave_error(run, "1-aa", 2, IntegrityError("row 17 is torn"))
    first = first_error(run, "1-aa", range(4))
    assert first is not None
    ending = of_error([view(0), view(2)], first, time.monotonic())
    assert (ending.what, ending.is_echo, ending.finding.ranks) == ("failed", False, [2])
    assert (ending.finding.reason, ending.exit_code) == ("row 17 is torn", IntegrityError.exit_code)


@pytest.mark.parametrize(
    ("error", "is_echo"),
    [
        (dist.DistNetworkError("The client socket has timed out after 30000ms"), True),
        (dist.DistBackendError("NCCL error: ncclRemoteError: a remote process exiting prematurely"), True),
        (dist.DistBackendError("NCCL error: ncclUnhandledCudaError: an illegal memory access"), False),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
    ],
)
def test_an_error_of_the_ranks_own_is_told_from_one_of_connections(run: Path, error: Exception, is_echo: bool) -> None:
    leave_error(run, "1-aa", 0, error)
    first = first_error(run, "1-aa", [0])
    assert first is not None
    assert first.is_echo == is_echo


def test_an_error_of_another_attempt_is_never_believed(run: Path) -> None:
    leave_error(run, "1-aa", 0, IntegrityError("of a run that was moved aside"))
    assert first_error(run, "1-bb", range(4)) is None
    assert of_error([view(0)], None, time.monotonic()).finding.reason == "a rank failed"


def test_a_silent_node_is_named_by_its_ranks_that_lived() -> None:
    views = [view(4, "step"), view(5, "step"), view(6, "done"), view(7, "step", state="")]
    ending = of_silence(1, views, 11.2)
    assert ending.finding.ranks == [4, 5]
    assert ending.finding.reason.startswith("node 1 (node-1, ranks 4 to 5) has told nothing for 11 s")
    assert of_silence(1, [], 11.2).finding.reason.startswith("node 1, never heard of, has told nothing")


@pytest.mark.parametrize(
    ("what", "seconds_later", "stays"),
    [
        ("killed", -0.1, False),  # torchrun told the others to stop because one was gone
        ("killed", 1.0, False),
        ("killed", 30.0, True),  # it did not stop in time
        ("failed", -0.1, False),
        ("failed", 0.1, True),
        ("node silent", -0.1, False),
        ("connection lost", -0.1, True),  # another rank was gone sooner, as it was told to be
        ("stall", -0.1, True),
    ],
)
def test_a_stop_that_was_no_wish_is_corrected(what: str, seconds_later: float, stays: bool) -> None:
    outcome = {"status": "preempted", "time": 1000.0}
    ending = Ending("fault", what, Finding("why"), 0.0, at=1000.0 + seconds_later)
    assert is_true(outcome, ending) == stays


def test_what_is_done_is_done_and_a_failure_has_a_cause() -> None:
    ending = Ending("fault", "failed", Finding("why"), 0.0)
    assert is_true({"status": "done", "time": 0.0}, ending)
    assert not is_true({"status": "failed", "time": 0.0}, ending)
