"""The rendered scripts on a real Slurm of four nodes."""

import json
import re
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
from tests.hub import REPOS, hub
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
        "retries": 4,
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


def command_job(folder: Path, *words: str, **fields: Any) -> Job:
    return job_in(folder, verb="command", arguments=words, **{"nodes": 1, **fields})


@pytest.mark.parametrize(("code", "restarts"), [(2, "0"), (70, "1")])
def test_failures_are_tried_again_unless_that_is_in_vain(
    slurm: Cluster, tmp_path: Path, code: int, restarts: str
) -> None:
    job = command_job(tmp_path, "sh", "-c", f"exit {code}", retries=1)
    number = submit(slurm, job)
    ended = until_ended(slurm, number)
    assert (ended["JobState"], ended["ExitCode"], ended["Restarts"]) == ("FAILED", f"{code}:0", restarts)
    assert [line["again"] for line in summary(job, number)] == [1] * int(restarts) + [0]


@pytest.mark.parametrize(
    ("words", "state", "code"),
    [(("--batch", "--signal=TERM"), "FAILED", "75:0"), ((), "CANCELLED", None)],
    ids=["stop", "scancel"],
)
def test_a_job_that_is_told_to_stop_stays_away(
    slurm: Cluster, tmp_path: Path, words: tuple[str, ...], state: str, code: str | None
) -> None:
    job = command_job(tmp_path, "sh", "-c", "touch began-$PET_NODE_RANK; sleep 120", nodes=2)
    number = submit(slurm, job)
    deadline = time.monotonic() + LONG_SECONDS
    while len(list(tmp_path.glob("began-*"))) < 2:
        assert time.monotonic() < deadline, slurm.job(number)
        time.sleep(0.2)
    slurm.run("scancel", *words, number)
    ended = until_ended(slurm, number)
    assert (ended["JobState"], ended["Restarts"]) == (state, "0"), output(job, number)
    if code is not None:
        assert ended["ExitCode"] == code
        (line,) = summary(job, number)
        assert (line["asked"], line["again"]) == ("stay", 0)


def test_names_that_try_to_break_out(slurm: Cluster, tmp_path: Path) -> None:
    """The folder, the arguments and the environment hold everything that a shell or Slurm could take for more."""
    value = f"{NASTY}\n$(touch {tmp_path}/broken)"
    show = "import json, os, sys; print(json.dumps([os.getcwd(), os.environ['TRIAL'], sys.argv[1:]]))"
    folder = tmp_path / 'it\'s $HOME `id` #1 "x"'
    job = command_job(folder, sys.executable, "-c", show, NASTY, value, environment={"TRIAL": value})
    number = submit(slurm, job)
    assert until_ended(slurm, number)["JobState"] == "COMPLETED", output(job, number)
    assert json.loads(output(job, number).splitlines()[-1]) == [str(folder), value, [NASTY, value]]
    assert not (tmp_path / "broken").exists()


def test_the_container_is_asked_for(slurm: Cluster, tmp_path: Path) -> None:
    """No container runs; pyxis's options are taken, and arrive whole, at each of two nodes."""
    if not (slurm.base / "plugstack.conf").read_text():
        lacking("no compiler, or no headers of Slurm: apt-get install gcc libslurm-dev")
    shown = ["IMAGE", "MOUNTS", "WORKDIR"]
    job = command_job(
        tmp_path / "work",
        "sh",
        "-c",
        f"echo {' '.join(f'given $PYXIS_GIVEN_CONTAINER_{name}' for name in shown)}",
        nodes=2,
        venv=None,
        image="registry.example#team/seatrial:0.1",
        mounts=({"path": str(tmp_path)}, {"path": "/usr/share", "source": "/mnt/it's"}),
        environment={"PATH": f"{sys.prefix}/bin:/usr/bin:/bin"},
    )
    number = submit(slurm, job)
    assert until_ended(slurm, number)["JobState"] == "COMPLETED", output(job, number)
    line = (
        f"given registry.example#team/seatrial:0.1 given {tmp_path}:{tmp_path},/mnt/it's:/usr/share given {job.workdir}"
    )
    assert output(job, number).splitlines().count(line) == 2


def test_two_nodes_are_accepted_together(slurm: Cluster, tmp_path: Path) -> None:
    job = job_in(tmp_path, verb="accept", arguments=("--checks", "host.clock", "--budget", "10s"))
    number = submit(slurm, job)
    ended = until_ended(slurm, number)
    acceptance = json.loads((tmp_path / "runs" / "acceptance" / "acceptance.json").read_text())
    presence = next(check for check in acceptance["checks"] if check["check"] == "cluster.presence")
    assert presence["verdict"] == "PASS", presence
    codes = {"PASS": "0:0", "WARN": "0:0", "FAIL": "1:0", "INCONCLUSIVE": "3:0"}
    assert ended["ExitCode"] == codes[acceptance["verdict"]], output(job, number)
    assert ended["Restarts"] == "0"


def test_every_node_is_accepted_by_itself(slurm: Cluster, tmp_path: Path) -> None:
    """Tasks that find their node tested leave it at that: four tasks on four nodes that are free test all four."""
    job = job_in(
        tmp_path,
        verb="accept",
        nodes=4,
        arguments=("--checks", "host.clock", "--budget", "10s"),
        cpus_per_node=None,
        slurm={"nodewise": True},
    )
    number = submit(slurm, job)
    deadline = time.monotonic() + LONG_SECONDS
    while slurm.run("squeue", "--noheader", f"--jobs={number}", "--format=%i"):
        assert time.monotonic() < deadline
        time.sleep(0.3)
    folder = tmp_path / ".seatrial" / f"trial-{number}"
    assert sorted(path.name for path in folder.iterdir()) == list(slurm.nodes)
    for node in slurm.nodes:
        assert json.loads((folder / node / "acceptance.json").read_text())["host"] == node
        (line,) = read_jsonl(folder / node / "summary.jsonl")
        assert line["nodes"] == node


@pytest.mark.parametrize("golden", ["slurm-1", "slurm-2", "slurm-container", "slurm-nodewise"])
def test_slurm_understands_every_directive(slurm: Cluster, golden: str) -> None:
    script = Path(__file__).parent / "golden" / f"{golden}.sbatch"
    slurm.run("sbatch", "--test-only", str(script), environment={"HF_TOKEN": SECRET})


def test_the_command_line_follows_a_job(slurm: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Submitted, seen, spoken to, stopped with what it had saved, and fetched, all through Slurm's own programs."""
    for name, value in slurm.environment.items():
        monkeypatch.setenv(name, value)
    begin = 'mkdir -p out; echo weights > out/adapter; echo "I run on $(hostname)"; trap "exit 75" USR1 TERM'
    script = f"{begin}; while :; do sleep 1; done"
    job = job_in(tmp_path / "work", verb="command", arguments=("sh", "-c", script), nodes=1)
    (tmp_path / "job.yaml").write_text(json.dumps({"job": job.model_dump(mode="json")}))
    state = ["--state", str(tmp_path / "state")]

    def launch(*words: str) -> str:
        argv = [sys.executable, "-m", "seatrial", "launch", *words, *state]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=LONG_SECONDS)
        assert done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    launch("slurm", str(tmp_path / "job.yaml"), "--submit")
    (listed,) = json.loads(launch("list", "--json"))
    log = job.workdir / f"trial-{listed['number']}.out"
    deadline = time.monotonic() + LONG_SECONDS
    while not Path(log).exists() or "I run on" not in Path(log).read_text():
        assert time.monotonic() < deadline, launch("status")
        time.sleep(0.3)
    assert "JobState=RUNNING" in launch("status", "trial")
    assert "I run on node" in launch("logs", "trial")
    assert launch("exec", "trial", "cat", "out/adapter") == "weights\n"
    launch("stop", "trial")
    assert until_ended(slurm, listed["number"])["ExitCode"] == "75:0"
    argv = [sys.executable, "-m", "seatrial", "launch", "slurm", str(tmp_path / "job.yaml"), "job.slurm.partition=man"]
    refused = subprocess.run([*argv, "--submit", *state], capture_output=True, text=True, timeout=LONG_SECONDS)
    assert refused.returncode == 2
    assert "did you mean main?" in refused.stderr


def test_all_that_would_go_wrong_is_said_at_once(slurm: Cluster, tmp_path: Path) -> None:
    job = job_in(tmp_path, verb="command", arguments=("true",), nodes=9, time_limit_hours=10, secrets=("HF_TOKEN",))
    (tmp_path / "job.yaml").write_text(json.dumps({"job": job.model_dump(mode="json")}))
    slurm.run("scontrol", "update", "PartitionName=main", "MaxTime=60")
    try:
        argv = [sys.executable, "-m", "seatrial", "launch", "slurm", str(tmp_path / "job.yaml"), "--check"]
        environment = {name: value for name, value in slurm.environment.items() if name != "HF_TOKEN"}
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=LONG_SECONDS)
    finally:
        slurm.run("scontrol", "update", "PartitionName=main", "MaxTime=INFINITE")
    assert done.returncode == 2
    for words in ("lets jobs run for 1 h", "has 4 nodes that are large enough", "HF_TOKEN: is not set", "--test-only"):
        assert words in done.stderr
    assert done.stderr.count("fix:") >= 4


def test_what_is_staged_is_there_before_a_gpu_is_held(slurm: Cluster, tmp_path: Path) -> None:
    with hub(f"{slurm.network}.254") as endpoint:
        job = job_in(
            tmp_path,
            verb="command",
            arguments=("true",),
            stage=(("fetch", "sea/pilot", "--to", str(tmp_path / "pilot")),),
            environment={
                "HF_ENDPOINT": endpoint,
                "HF_HOME": str(tmp_path / "cache"),
                "HF_HUB_DISABLE_XET": "1",
                "NO_PROXY": "*",
            },
        )
        (tmp_path / "job.yaml").write_text(json.dumps({"job": job.model_dump(mode="json")}))
        argv = [sys.executable, "-m", "seatrial", "launch", "slurm", str(tmp_path / "job.yaml"), "--stage", "--submit"]
        argv += ["--state", str(tmp_path / "state")]
        done = subprocess.run(argv, env=slurm.environment, capture_output=True, text=True, timeout=LONG_SECONDS)
        assert done.returncode == 0, done.stderr
        (number,) = re.findall(r"submitted trial-stage-1 as (\d+)", done.stderr)
        assert until_ended(slurm, number)["ExitCode"] == "0:0"
    assert (tmp_path / "pilot" / "model.safetensors").read_bytes() == REPOS["models/sea/pilot"]["model.safetensors"]
