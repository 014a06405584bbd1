"""seatrial checkpoint list, verify, consolidate: the very program, its output and its exit codes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seatrial.dist.checkpoint.storage import Directory
from seatrial.rundir import RunDir
from tests.dist.checkpoint.plain import NAMES, make


def seatrial(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "seatrial", "checkpoint", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run")
    run.prepare()
    run.settings.write_text(json.dumps({"checkpoint": {}}))
    for step in (1, 2):
        make(Directory(run.checkpoints), step)
    return run


def answered(done: subprocess.CompletedProcess[str], code: int = 0) -> Any:
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout)


def test_list(run: RunDir) -> None:
    found = answered(seatrial("list", str(run.path), "--json"))
    assert [(one["name"], one["step"], one["valid"]) for one in found] == [
        ("step-00000002", 2, True),
        ("step-00000001", 1, True),
    ]
    assert found[0]["bytes"] == 3 * 5006 + 2


def test_verify_exits_76_and_names_the_file(run: RunDir) -> None:
    assert all(one["valid"] for one in answered(seatrial("verify", str(run.path), "--json")))
    file = run.checkpoints / "step-00000001" / NAMES[1]
    content = bytearray(file.read_bytes())
    content[1000] ^= 4
    file.write_bytes(content)
    done = seatrial("verify", str(run.path), "--json")
    assert [one["valid"] for one in answered(done, 76)] == [True, False]
    assert f"step-00000001/{NAMES[1]}: differs from what the manifest states" in done.stderr
    assert seatrial("verify", str(run.path), "--step", "2").returncode == 0
    assert all(one["valid"] for one in answered(seatrial("list", str(run.path), "--json")))  # sizes alone


def test_what_is_not_there_is_the_user_s_to_mend(run: RunDir, tmp_path: Path) -> None:
    done = seatrial("verify", str(run.path), "--step", "7")
    assert done.returncode == 2
    assert "no checkpoint of step 7; there are those of 2, 1" in done.stderr
    done = seatrial("list", str(tmp_path))
    assert done.returncode == 2
    assert "is not a run directory" in done.stderr
