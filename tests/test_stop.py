"""Real signals, to this process and to commands."""

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from seatrial.errors import Preempted
from seatrial.stop import stop_requests


def test_between_steps_a_signal_is_a_flag(tmp_path: Path) -> None:
    with stop_requests(tmp_path / "stop") as stop:
        assert stop.reason == ""
        assert stop.has_time_for(1000, grace_seconds=30)
        os.kill(os.getpid(), signal.SIGUSR1)
        assert stop.reason == "SIGUSR1"
        assert stop.has_time_for(20, grace_seconds=30)
        assert not stop.has_time_for(31, grace_seconds=30)


def test_a_file_is_a_request_without_a_deadline(tmp_path: Path) -> None:
    with stop_requests(tmp_path / "stop") as stop:
        (tmp_path / "stop").touch()
        assert stop.reason == "stop file"
        assert stop.has_time_for(1000, grace_seconds=30)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_where_nothing_can_be_saved_a_signal_ends_the_work(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    with pytest.raises(Preempted, match=f"stopped by {number.name} with nothing to save"), stop_requests(at_once=True):
        os.kill(os.getpid(), number)
        time.sleep(10)
    assert signal.getsignal(number) is before


def test_what_breaks_because_of_a_request_is_no_failure() -> None:
    """A library caught our error and made its own of it."""
    with pytest.raises(Preempted, match="SIGTERM"), stop_requests(at_once=True):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
        except Preempted as error:
            raise RuntimeError("compilation failed") from error


def test_an_error_without_a_request_stays_what_it_is() -> None:
    with pytest.raises(ValueError, match="ours"), stop_requests(at_once=True):
        raise ValueError("ours")


def test_a_request_that_came_early_is_answered_before_the_steps() -> None:
    with pytest.raises(Preempted), stop_requests(at_once=True) as stop:
        with suppress(Preempted):  # as a library that catches everything does
            os.kill(os.getpid(), signal.SIGTERM)
        stop.has_read_a_step()


@pytest.mark.parametrize(("steps_read", "error"), [(1, Preempted), (2, Preempted), (3, RuntimeError)])
def test_a_rank_that_left_at_once_takes_the_others_along(steps_read: int, error: type[Exception]) -> None:
    """It had not read its first step when all were asked to stop, and the others lose their connection to it."""
    with pytest.raises(error, match=r"stopped by SIGTERM|closed by peer"), stop_requests(at_once=True) as stop:
        for _ in range(steps_read):
            stop.has_read_a_step()
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.reason == "SIGTERM"
        raise RuntimeError("connection closed by peer")


def test_a_second_ctrl_c_leaves_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), stop_requests() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.reason == "SIGINT"
        os.kill(os.getpid(), signal.SIGINT)


def test_data_that_is_being_prepared_leaves_nothing_behind(tmp_path: Path) -> None:
    row = '{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"hello"}],"tools":[]}\n'
    (tmp_path / "rows.jsonl").write_text(row * 300_000)
    out = tmp_path / "out"
    command = [sys.executable, "-m", "seatrial", "data", "prepare", "--in", str(tmp_path / "rows.jsonl")]
    process = subprocess.Popen(
        [*command, "--source", "openai", "--workers", "1", "--out", str(out)], stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 60
    while not list(out.glob(".partial-*/*")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.01)
    assert list(out.glob(".partial-*")), "it is at work"
    process.terminate()
    _, said = process.communicate(timeout=60)
    assert process.returncode == 75, said
    assert "stopped by SIGTERM" in said
    assert list(out.iterdir()) == []
