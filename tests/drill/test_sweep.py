"""A short drill of real trainings, one fault of each family that is quick, and its record as JSON and as a page."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer.main

from seatrial.cli.main import app
from seatrial.dist.watchdog.sight import process_state
from seatrial.drill.acts import descendants
from seatrial.drill.catalogue import CATALOGUE
from seatrial.drill.page import render
from seatrial.drill.sweep import Drill, chosen, run_drill
from seatrial.drill.torchrun import _processes_of
from seatrial.errors import Preempted, UsageError

FAULTS = ("abort of a rank", "SIGKILL of the writer", "loss of the node that recovers", "disk error", "bit flip", "NaN")


def test_trainings_come_through(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "seatrial", "drill", "--faults", str(len(FAULTS)), "--seed", "0", "--world", "1,2"]
    options = ["--only", ",".join(FAULTS), "--out", str(tmp_path / "drill"), "--json", str(tmp_path / "drill.json")]
    kept = set()
    with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as drill:
        while drill.poll() is None:
            if (tmp_path / "drill.json").exists():
                kept.add(len(json.loads((tmp_path / "drill.json").read_text())["faults"]))
            time.sleep(0.05)
        assert drill.returncode == 0, drill.stderr.read() if drill.stderr is not None else ""
    assert kept >= {1, len(FAULTS)}, "the record grows with every training"
    result = json.loads((tmp_path / "drill.json").read_text())
    assert {line["name"].partition(" on")[0] for line in result["faults"]} == set(FAULTS)
    for line in result["faults"]:
        assert line["verdict"] in ("PASS", "WARN"), line
        assert {"name", "moment", "detected_s", "recovered_s", "lost_steps", "final_sha256"} <= line.keys()
        assert (line["final_sha256"] == result["undisturbed_sha256"]) == (line["family"] != "numbers")
    assert 0 < result["ettr"] < 1
    assert result["left_out"] == 0
    page = render(result)
    assert result["undisturbed_sha256"] in page
    assert all(line["name"] in page for line in result["faults"])


def test_one_that_is_stopped_leaves_no_process(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "seatrial", "drill", "--world", "2", "--out", str(tmp_path / "drill")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as drill:
        deadline = time.monotonic() + 200
        while len(started := descendants(drill.pid)) < 4:  # torchrun, two ranks, and what they start
            assert drill.poll() is None and time.monotonic() < deadline
            time.sleep(0.05)
        drill.send_signal(signal.SIGINT)
        _, said = drill.communicate(timeout=300)
    assert drill.returncode == Preempted.exit_code, said
    assert not any(process_state(pid) for pid in started)
    assert not _processes_of(tmp_path / "drill")


def test_only_what_is_asked_for() -> None:
    assert {kind.family for kind in chosen(["storage"], gpus=0)} == {"storage"}
    assert [kind.name for kind in chosen(["bit flip"], gpus=0)] == ["bit flip"]
    assert len(chosen([], gpus=0)) >= len(CATALOGUE) - 1
    assert {kind.nodes for kind in chosen([], gpus=4)} == {1}
    with pytest.raises(UsageError, match="no such fault; families are data, disk"):
        chosen(["meteor"], gpus=0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--world", "2,x"], "--world 2,x: expected numbers of processes"),
        (["--world", ""], "--world : expected numbers of processes"),
        (["--budget", "soon"], "--budget soon: expected a time, such as 90s"),
        (["--budget", "5"], "--budget 5: expected a time"),
    ],
)
def test_a_mistake_is_named(options: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        typer.main.get_command(app)(["drill", *options], standalone_mode=False)


def test_a_directory_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    asked = Drill(out=tmp_path, settings=None, faults=1, seed=0, worlds=(1,))
    with pytest.raises(UsageError, match="is not empty and holds no drill"):
        run_drill(asked, print, print)
    assert (tmp_path / "thesis.tex").exists()
