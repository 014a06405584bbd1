"""Commands of rendered manifests, run for real in two pods that are stopped, killed and lost, to the same weights."""

import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from seatrial.launch.job import Job, Rendered
from seatrial.launch.kubernetes import render_kubernetes
from seatrial.launch.pytorchjob import render_pytorchjob
from seatrial.launch.skypilot import render_skypilot
from seatrial.launch.trainjob import render_trainjob
from seatrial.rundir import RunDir
from tests.launch.controllers import Controlled, Run, indexed_job, pytorch_job, sky_job, train_job
from tests.launch.manifests import objects, of_kind
from tests.launch.pods import Cluster, cluster
from tests.launch.requirements import need_namespaces
from tests.small import settings_for, write_config, write_model, write_rows

SECRET = "hf_value-that-nobody-may-see"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, rows, a settings file, and the run that nobody disturbed."""
    need_namespaces()
    folder = tmp_path_factory.mktemp("data")
    write_model(folder / "model")
    write_rows(folder / "data", rows=8)
    here = settings_for(folder, "reference", optimizer={"steps": 48, "packs_per_step": 2})
    there = settings_for(
        Path("/mnt/data"),
        run={"dir": "runs/tiny", "timeout_seconds": 60, "hang_seconds": 6},
        optimizer={"steps": 48, "packs_per_step": 2},
        checkpoint={"every_steps": 4},
    )
    write_config(there, folder / "config.yaml")
    reference = write_config(here, folder / "reference.yaml")
    subprocess.run(
        [sys.executable, "-m", "seatrial", "train", str(reference)], check=True, timeout=240, capture_output=True
    )
    return folder


@pytest.fixture
def pods(data: Path, tmp_path: Path) -> Iterator[Cluster]:
    claim = tmp_path / "claims" / "tiny-data"
    claim.mkdir(parents=True)
    for name in ("model", "data"):
        (claim / name).symlink_to(data / name)
    with cluster(tmp_path, secrets={"seatrial": {"HF_TOKEN": SECRET}}) as there:
        yield there


def tiny(**changes: Any) -> Job:
    fields: dict[str, Any] = {
        "name": "tiny",
        "config": "config.yaml",
        "nodes": 2,
        "gpus_per_node": 0,
        "processes_per_node": 1,
        "image": "seatrial",
        "workdir": "/mnt/data",
        "mounts": ({"path": "/mnt/data", "source": "tiny-data"},),
        "fabric": "none",
        "grace_seconds": 60,
        "retries": 2,
        "secrets": ("HF_TOKEN",),
        **changes,
    }
    return Job.model_validate(fields)


def begin(pods: Cluster, rendered: Rendered, controlled: Controlled) -> tuple[Run, RunDir]:
    pods.objects += objects(rendered)
    run = Run(pods, controlled)
    run.start()
    return run, RunDir(pods.folder / "claims" / "tiny-data" / "runs" / "tiny")


def steps(run: RunDir) -> int:
    return max((record["step"] for record in run.read_metrics()), default=0)


def finish(run: Run, of: RunDir, data: Path) -> None:
    """To the end, with the weights of the run that nobody disturbed."""
    assert run.end() == "complete", run.logs()
    ours, undisturbed = (
        hashlib.sha256((each.adapter / "adapter_model.safetensors").read_bytes()).hexdigest()
        for each in (of, RunDir(data / "reference"))
    )
    assert ours == undisturbed
    seen = [file for file in pods_files(run.cluster) if SECRET.encode() in file.read_bytes()]
    assert not seen


def pods_files(pods: Cluster) -> list[Path]:
    """Logs, settings, and all that the run has written."""
    files = [file for file in pods.folder.rglob("*") if file.is_file() and "layers" not in str(file)]
    assert any(file.name == "metrics.jsonl" for file in files)
    assert any(file.suffix == ".log" for file in files)
    return files


def test_an_indexed_job_goes_on_after_a_lost_node_and_a_drained_one(pods: Cluster, data: Path) -> None:
    """The first node is lost, and with it the store that all meet at."""
    rendered = render_kubernetes(tiny(), (data / "config.yaml").read_text())
    run, training = begin(pods, rendered, indexed_job(of_kind("Job", rendered)))
    run.until(lambda: steps(training) >= 10)
    first, second = run.pods[0], run.pods[1]
    pods.lose(first)
    run.until(lambda: run.pods[0] is not first and steps(training) >= 20)
    assert run.pods[1] is second, "the pod that was left goes on"
    (said,) = (event for event in training.read_events() if event["event"] in ("stall", "fault"))
    assert (said["ranks"], said["host"]) == ([0], "tiny-0")
    pods.evict(second)
    run.until(lambda: len(run.ended) == 3)
    assert sorted(run.ended[1:]) == [(0, 75), (1, 75)], run.logs()
    finish(run, training, data)
    assert not any(run.failures.values()), "neither counts"


def test_a_pytorchjob_trains(pods: Cluster, data: Path) -> None:
    rendered = render_pytorchjob(tiny(), (data / "config.yaml").read_text())
    run, training = begin(pods, rendered, pytorch_job(of_kind("PyTorchJob", rendered)))
    finish(run, training, data)


def test_a_task_of_skypilot_trains(pods: Cluster, data: Path) -> None:
    rendered = render_skypilot(tiny(secrets=()), (data / "config.yaml").read_text())
    run, training = begin(pods, rendered, sky_job(objects(rendered)[0]))
    finish(run, training, data)


def test_a_trainjob_starts_all_pods_again_when_one_was_asked_to_stop(pods: Cluster, data: Path) -> None:
    rendered = render_trainjob(tiny(), (data / "config.yaml").read_text())
    run, training = begin(
        pods, rendered, train_job(of_kind("TrainingRuntime", rendered), of_kind("TrainJob", rendered))
    )
    run.until(lambda: steps(training) >= 10)
    pods.evict(run.pods[1])
    finish(run, training, data)
    assert sorted(run.ended[:2]) == [(0, 75), (1, 75)]
    assert not any(run.failures.values())


def test_an_elastic_pytorchjob_takes_a_lost_node_back(pods: Cluster, data: Path) -> None:
    rendered = render_pytorchjob(tiny(min_nodes=1), (data / "config.yaml").read_text())
    run, training = begin(pods, rendered, pytorch_job(of_kind("PyTorchJob", rendered)))
    run.until(lambda: steps(training) >= 10)
    first = run.pods[0]
    pods.lose(run.pods[1])
    finish(run, training, data)
    assert (0, 0) in run.ended
    assert [at for at, _ in run.ended].count(0) == 1, "the first worker went on"
    assert not first.disrupted


def run_command(folder: Path, control: str, script: str) -> tuple[str, list[int], str]:
    """How a job of one pod ended, the codes of its pods, and their logs."""
    arguments = ("sh", "-c", script, "a b", "$(HOME)")
    job = tiny(verb="command", config=None, nodes=1, arguments=arguments, secrets=())
    match control:
        case "kubernetes":
            rendered = render_kubernetes(job, None)
            controlled = indexed_job(of_kind("Job", rendered))
        case "pytorchjob":
            rendered = render_pytorchjob(job, None)
            controlled = pytorch_job(of_kind("PyTorchJob", rendered))
        case _:
            rendered = render_trainjob(job, None)
            controlled = train_job(of_kind("TrainingRuntime", rendered), of_kind("TrainJob", rendered))
    with cluster(folder) as pods:
        pods.objects += objects(rendered)
        run = Run(pods, controlled)
        run.start()
        return run.end(timeout_seconds=120), [code for _, code in run.ended], run.logs()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    need_namespaces()
    monkeypatch.setattr("tests.launch.controllers.BACKOFF_SECONDS", 0.0)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    "script",
    [
        'test "$PET_NODE_RANK $PET_NNODES $PET_MASTER_ADDR" = "$JOB_COMPLETION_INDEX 1 tiny-0.tiny"',
        """test "$0 $1" = 'a b $(HOME)' && getent hosts tiny-0.tiny""",
        'test "$SEATRIAL_NODE_NAME $(hostname)" = "this-machine tiny-0" && getent hosts $(hostname)',
        "touch ran && test $(pwd) = /mnt/data && mountpoint /dev/shm",
    ],
)
def test_what_a_pod_sees(tmp_path: Path, script: str) -> None:
    result, ended, logs = run_command(tmp_path, "kubernetes", script)
    assert (result, ended) == ("complete", [0]), logs


AGAIN = "test -e ran || { touch ran; exit %d; }"


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(
    ("control", "script", "ended", "result"),
    [
        ("kubernetes", "exit 2", [2], "failed"),
        ("kubernetes", "exit 9", [9, 9, 9], "failed"),
        ("kubernetes", AGAIN % 75, [75, 0], "complete"),
        ("pytorchjob", "exit 2", [2], "failed"),
        ("pytorchjob", AGAIN % 75, [138, 0], "complete"),
        ("pytorchjob", AGAIN % 70, [138, 0], "complete"),
        ("trainjob", "exit 78", [78], "failed"),
        ("trainjob", "exit 9", [9, 9, 9], "failed"),
        ("trainjob", AGAIN % 75, [75, 0], "complete"),
    ],
)
def test_an_exit_code_decides(tmp_path: Path, control: str, script: str, ended: list[int], result: str) -> None:
    """job.retries are 2; after 75 it is not counted."""
    found, codes, logs = run_command(tmp_path, control, script)
    assert (found, codes) == (result, ended), logs
