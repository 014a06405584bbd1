"""The rendered scripts on a real Slurm of four nodes."""

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.launch.job import Job
from seatrial.launch.slurm import render_slurm
from seatrial.records import JsonObject, read_jsonl
from seatrial.rundir import RunDir
from tests.launch.requirements import lacking
from tests.launch.slurm_cluster import Cluster, cluster, missing
from tests.small import settings_for, write_config, write_model, write_rows

LONG_SECONDS = 240
SECRET = "trial-8f14e45fceea167a"
NASTY = """it's "$HOME" `id` $(id) \\ #x ; & | * ~"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    if why := missing():
        lacking(why)
    folder = tmp_path_factory.mktemp("slurm")
    with cluster(folder / "base", 4, plugin=compiled(Path(__file__).parent / "pyxis.c", folder)) as made:
        yield made


def compiled(source: Path, folder: Path) -> Path | None:
    """The stand-in for pyxis, where there are a compiler and Slurm's headers."""
    if shutil.which("cc") is None or not Path("/usr/include/slurm/spank.h").exists():
        return None
    plugin = folder / "pyxis.so"
    subprocess.run(["cc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", plugin, source], check=True)
    return plugin


def job_in(folder: Path, **fields: Any) -> Job:
    folder.mkdir(parents=True, exist_ok=True)
    values: dict[str, Any] = {
        "name": "trial",
        "nodes": 2,
        "gpus_per_node": 0,
        "processes_per_node": 1,
        "cpus_per_node": 1,
        "memory_gib": 1,
        "venv": sys.prefix,
        "workdir": str(folder),
        "fabric": "none",
        "time_limit_hours": 0.5,
        **fields,
    }
    return Job.model_validate(values)


def submit(slurm: Cluster, job: Job, config: str | None = None, **environment: str) -> str:
    """The number of the job."""
    rendered = render_slurm(job, config)
    for name, text in rendered.files:
        Path(job.workdir, name).write_text(text)
    (command,) = rendered.submit
    return slurm.run(*command, environment=environment, cwd=Path(job.workdir))


def until_ended(slurm: Cluster, number: str) -> dict[str, str]:
    deadline = time.monotonic() + LONG_SECONDS
    while (found := slurm.job(number))["JobState"] not in ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT"):
        assert time.monotonic() < deadline, found
        time.sleep(0.3)
    return found


def output(job: Job, number: str) -> str:
    return Path(job.workdir, f"{job.name}-{number}.out").read_text()


def summary(job: Job, number: str) -> list[JsonObject]:
    return list(read_jsonl(Path(job.workdir, ".seatrial", f"{job.name}-{number}", "summary.jsonl")))


def losses(run: RunDir) -> dict[int, float]:
    """The last record of each step counts: what a restart did again replaces what it lost."""
    return {record["step"]: record["loss"] for record in run.read_metrics()}


def until_step(slurm: Cluster, number: str, run: RunDir, attempt: int, steps: int) -> None:
    """So many steps into an attempt of a job that runs."""
    deadline = time.monotonic() + LONG_SECONDS
    while [record["attempt"] for record in run.read_metrics()].count(attempt) < steps:
        job = slurm.job(number)
        log = Path(job["StdOut"])
        assert time.monotonic() < deadline, log.read_text()[-4000:]
        assert job["JobState"] in ("PENDING", "RUNNING", "COMPLETING"), log.read_text()[-4000:]
        time.sleep(0.2)


def test_training_goes_on_through_preemption_and_a_lost_node(slurm: Cluster, tmp_path: Path) -> None:
    """Saved on request and requeued; resumed on the two other nodes; the first of them dies; finished all the same.

    Every step's loss is that of the same training on one undisturbed process, to the last digit, and the secret that
    the job was given stands in no file that it left.
    """
    write_model(tmp_path / "model")
    write_rows(tmp_path / "data", rows=40)
    steps = {"steps": 40, "packs_per_step": 2}
    saves = {"every_steps": 4}
    plain = write_config(settings_for(tmp_path, "plain", optimizer=steps, checkpoint=saves), tmp_path / "plain.yaml")
    config = write_config(settings_for(tmp_path, "run", optimizer=steps, checkpoint=saves), tmp_path / "train.yaml")
    job = job_in(tmp_path / "work", config="train.yaml", secrets=("HF_TOKEN",), grace_seconds=60)
    run = RunDir(tmp_path / "run")

    number = submit(slurm, job, config.read_text(), HF_TOKEN=SECRET)
    until_step(slurm, number, run, 1, 3)
    used = slurm.run("scontrol", "show", "hostnames", slurm.job(number)["NodeList"]).split()
    for node in used:
        slurm.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=trial")
    slurm.run("scancel", "--batch", "--signal=USR1", number)
    until_step(slurm, number, run, 2, 3)
    others = slurm.run("scontrol", "show", "hostnames", slurm.job(number)["NodeList"]).split()
    assert not set(used) & set(others)

    for node in used:
        slurm.run("scontrol", "update", f"nodename={node}", "state=resume")
    slurm.kill_node(others[0])
    ended = until_ended(slurm, number)
    assert (ended["JobState"], ended["Restarts"]) == ("COMPLETED", "2"), output(job, number)[-4000:]
    slurm.start_node(others[0])

    subprocess.run([sys.executable, "-m", "seatrial", "train", str(plain)], check=True, capture_output=True)
    assert losses(run) == losses(RunDir(tmp_path / "plain"))
    assert len(losses(run)) == steps["steps"]
    attempts = summary(job, number)
    assert [(line["exit_code"], line["asked"], line["again"]) for line in attempts] == [(75, "again", 1), (0, "", 0)]
    files = [path for folder in (job.workdir, run.path) for path in Path(folder).rglob("*") if path.is_file()]
    assert len(files) > 10
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
