"""However a training ends, its outcome says how, and its exit code what to do."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seatrial.dist.heartbeat import RankBeats, read_local
from seatrial.errors import ImpossibleConfiguration
from seatrial.records import JsonObject
from seatrial.rundir import RunDir
from seatrial.train.loop import train
from tests.small import settings_for, write_config

BEFORE_THE_FIRST_STEP = ("data", "load", "restore", "compile")


def in_phase(run: RunDir, phases: tuple[str, ...], ranks: int) -> list[RankBeats]:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        beats = read_local(run.path, range(ranks))
        if len(beats) == ranks and all(b.main is not None and b.main.phase in phases for b in beats):
            return beats
        time.sleep(0.002)
    raise AssertionError(f"never in {phases}")


def outcome_of(run: RunDir) -> JsonObject:
    """As soon as there is one: a killed run's is written by its watchdog."""
    deadline = time.monotonic() + 10
    while (outcome := run.read_outcome()) is None:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return outcome


def test_asked_before_the_first_step_all_ranks_leave_at_once(harbour: Path) -> None:
    settings = settings_for(harbour)
    run = RunDir(settings.run.dir)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    config = str(write_config(settings, harbour / "c.yaml"))
    process = subprocess.Popen([*launch, "-m", "seatrial", "train", config], stderr=subprocess.DEVNULL)
    in_phase(run, BEFORE_THE_FIRST_STEP, 2)
    process.terminate()
    process.wait(60)
    outcome = outcome_of(run)
    assert (outcome["status"], outcome["exit_code"]) == ("preempted", 75), outcome
    assert run.exit_code(process.returncode, None) == 75
    assert run.read_metrics() == []


SECOND_RANK_READS_LATE = """
import os, sys, time
from seatrial import stop
from seatrial.cli.main import main

class Late(stop.StopRequest):
    def has_read_a_step(self):
        end = time.monotonic() + (1.5 if os.environ["RANK"] == "1" and not self._steps_read else 0)
        while time.monotonic() < end:
            time.sleep(0.01)
        super().has_read_a_step()

stop.StopRequest = Late
main()
"""


def test_asked_when_only_some_ranks_have_read_a_step_all_are_preempted(harbour: Path) -> None:
    """The second leaves at once, for it has nothing to save yet; the first loses its connection to it."""
    settings = settings_for(harbour, optimizer={"steps": 2000}, checkpoint={"every_steps": 1000})
    run = RunDir(settings.run.dir)
    (harbour / "late.py").write_text(SECOND_RANK_READS_LATE)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    config = str(write_config(settings, harbour / "c.yaml"))
    process = subprocess.Popen([*launch, str(harbour / "late.py"), "train", config], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while not run.read_metrics() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.terminate()
    process.wait(60)
    outcome = outcome_of(run)
    assert (outcome["status"], outcome["exit_code"]) == ("preempted", 75), outcome
    assert "nothing to save" in outcome["reason"]


def test_a_killed_training_has_an_outcome(harbour: Path) -> None:
    settings = settings_for(harbour, optimizer={"steps": 100_000})
    run = RunDir(settings.run.dir)
    config = str(write_config(settings, harbour / "c.yaml"))
    process = subprocess.Popen([sys.executable, "-m", "seatrial", "train", config], stderr=subprocess.DEVNULL)
    in_phase(run, ("step",), 1)
    process.send_signal(signal.SIGKILL)
    process.wait()
    outcome = outcome_of(run)
    assert (outcome["status"], outcome["exit_code"]) == ("failed", 70)
    assert f"rank 0 (process {process.pid} on {os.uname().nodename}) was killed in " in outcome["reason"]


def test_a_run_that_leads_nowhere_is_ended_for_good(harbour: Path) -> None:
    settings = settings_for(harbour, run={"max_attempts_without_progress": 2}, optimizer={"steps": 2})
    run = RunDir(settings.run.dir)
    run.path.mkdir()
    for attempt in (1, 2):
        run.event("start", attempt=attempt)
        run.event("failed", reason="CUDA out of memory", exit_code=70, attempt=attempt)
    run.settings.write_text(settings.model_dump_json())
    with pytest.raises(ImpossibleConfiguration, match=r"2 attempts in a row failed .* with: CUDA out of memory"):
        train(settings)
    assert outcome_of(run)["exit_code"] == 78
    train(settings)
    assert outcome_of(run)["status"] == "done"
