"""Jobs that stage, and what they do on a node, from a hub of our own."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.errors import SettingsError
from seatrial.launch.job import Job, node_command
from seatrial.launch.staging import destination, staging_jobs
from tests.hub import COMMIT, hub
from tests.launch.preflight.jobs import job

FETCH = ("fetch", "sea/pilot", "--to", "/mnt/data/models/pilot")
PREPARE = ("prepare", "--in", "sea/tides", "--out=/mnt/data/tides")
SHARED = ({"path": "/mnt/data"}, {"path": "/scratch", "kind": "scratch"})


def staged(target: str = "kubernetes", **fields: Any) -> tuple[Job, ...]:
    return staging_jobs(job(**{"stage": (FETCH, PREPARE), "mounts": SHARED, **fields}), target)


def test_each_is_a_job_of_its_own_without_gpus() -> None:
    first, second = staged(cpus_per_node=128, run_dir="/mnt/data/run", secrets=("HF_TOKEN",), image="x:1")
    assert (first.name, second.name) == ("tune-stage-1", "tune-stage-2")
    assert node_command(first, python="python", config=None)[2:] == ["seatrial.launch.node", "data", *FETCH]
    for one in (first, second):
        assert (one.nodes, one.gpus_per_node, one.processes, one.cpus_per_node) == (1, 0, 1, 4)
        assert (one.secrets, one.image, one.mounts) == (("HF_TOKEN",), "x:1", staged()[0].mounts)


@given(name=st.from_regex(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", fullmatch=True))
def test_names_stay_names(name: str) -> None:
    names = [one.name for one in staged(name=name)]
    assert len(set(names)) == 2
    assert all(re.fullmatch(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?", one) for one in names)


@pytest.mark.parametrize(
    ("target", "stage", "words"),
    [
        ("slurm", (), "job.stage is empty"),
        ("slurm", (("validate", "x"),), "expected fetch ... --to DIR or prepare ... --out DIR"),
        ("slurm", (("fetch", "sea/pilot"),), "expected fetch ... --to DIR"),
        ("slurm", ((),), "expected fetch"),
        ("slurm", (("fetch", "sea/pilot", "--to", "/scratch/x"),), "which is scratch: choose a shared mount"),
        ("kubernetes", (("fetch", "sea/pilot", "--to", "/models"),), "would go with its container"),
    ],
)
def test_what_cannot_be_staged(target: str, stage: tuple[tuple[str, ...], ...], words: str) -> None:
    with pytest.raises(SettingsError, match=re.escape(words)):
        staged(target, stage=stage)


def test_destinations() -> None:
    assert str(destination(FETCH)) == "/mnt/data/models/pilot"
    assert str(destination(PREPARE)) == "/mnt/data/tides"
    assert destination(("fetch", "--to")) is None


def test_a_node_stages_and_stages_again_offline(tmp_path: Path) -> None:
    (one,) = staged("slurm", stage=(("fetch", "sea/pilot", "--to", str(tmp_path / "pilot")),), mounts=())
    with hub() as endpoint:
        for place in (endpoint, "http://127.0.0.1:9"):
            done = run_as_a_node(one, tmp_path, HF_ENDPOINT=place)
            assert done.returncode == 0, done.stderr
            assert f"model sea/pilot at {COMMIT} is in" in done.stderr.replace("\n", " ")
    assert (tmp_path / "pilot" / "model.safetensors").read_bytes() == b"w"


def run_as_a_node(one: Job, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    environment |= {"HF_HOME": str(folder / "cache"), "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1"}
    command = node_command(one, python=sys.executable, config=None)
    return subprocess.run(command, env={**environment, **variables}, capture_output=True, text=True, timeout=120)
