"""What the targets' programs are told about a job."""

import shlex
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from seatrial.errors import UsageError
from seatrial.launch import control
from seatrial.launch.kubernetes import render_kubernetes
from seatrial.launch.ledger import Launched, find, launched_jobs, write
from seatrial.launch.plan import TARGETS, Plan
from seatrial.launch.submit import unpack
from tests.launch.jobs import training


def launched(target: str, **fields: Any) -> Launched:
    job = training(2, kubernetes={"namespace": "ml", "context": "big"})
    values: dict[str, Any] = {"number": "llama-lora", "folder": "/s", "results": "/mnt/data/runs/x", "time": 1.0}
    return Launched.model_validate({"target": target, "job": job, **values, **fields})


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("slurm", "scancel --batch --signal=TERM 12"),
        ("skypilot", "sky jobs cancel --yes --name llama-lora"),
        ("docker", "docker stop --time=120 llama-lora"),
        ("torchrun", "kill -TERM 12"),
    ],
)
def test_stop_asks_for_a_last_save(target: str, line: str) -> None:
    assert shlex.join(control.stop(launched(target, number="12"))) == line


@pytest.mark.parametrize("target", sorted(control.KINDS))
def test_kubernetes_is_asked_in_the_job_s_own_place(target: str) -> None:
    job = launched(target)
    lines = [*control.status(job), control.logs(job, follow=True), control.pods(job), control.stop(job)]
    assert all(line[:5] == ("kubectl", "--context", "big", "--namespace", "ml") for line in lines)


def test_slurm_s_number_is_what_sbatch_printed() -> None:
    assert control.handle("slurm", "a", "4711;cluster\n") == "4711"
    assert control.handle("kubernetes", "a", "job.batch/a created\n") == "a"


def test_an_array_has_many_logs_and_a_folder_of_results() -> None:
    job = training(3, verb="accept", config=None, run_dir=None, arguments=(), slurm={"nodewise": True})
    array = launched("slurm", number="7", job=job)
    assert control.logs(array, follow=False)[-3:] == tuple(
        f"/mnt/data/work/llama-lora-7_{task}.out" for task in range(3)
    )
    plan = Plan(job=job, folder=Path(), config_text=None, excluded=(), results=PurePosixPath("/x"))
    assert control.results("slurm", plan, "7") == PurePosixPath("/mnt/data/work/.seatrial/llama-lora-7")
    assert control.results("kubernetes", plan, "7") == PurePosixPath("/x")


@pytest.mark.parametrize("target", [target for target in TARGETS if target not in ("skypilot", "torchrun")])
def test_words_stay_words(target: str) -> None:
    assert control.shell(launched(target), ["echo", "a b"], pod="p")[-2:] == ("echo", "a b")


def test_whoever_reads_results_holds_no_gpu_and_no_secret() -> None:
    job = control.reader(training(64))
    text = "".join(text for _, text in render_kubernetes(job, None).files)
    assert "nvidia.com/gpu" not in text
    assert "HF_TOKEN" not in text
    assert "/mnt/data" in text


def test_results_are_packed_without_checkpoints(tmp_path: Path) -> None:
    run = tmp_path / "it's a run"
    for name in ("adapter/a", "checkpoints/step-1/b", "outcome.json"):
        (run / name).parent.mkdir(parents=True, exist_ok=True)
        (run / name).write_text(name)
    unpack(control.archive(launched("docker", results=PurePosixPath(run))), tmp_path / "here")
    found = [
        path.relative_to(tmp_path / "here").as_posix() for path in (tmp_path / "here").rglob("*") if path.is_file()
    ]
    assert sorted(found) == ["adapter/a", "outcome.json"]


def test_what_cannot_be_packed_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file or directory"):
        unpack(control.archive(launched("docker", results=PurePosixPath(tmp_path / "none"))), tmp_path)
    with pytest.raises(UsageError, match="leaves no results in a known place"):
        control.archive(launched("docker", results=None))


def test_the_newest_of_a_name_is_found(tmp_path: Path) -> None:
    for number, time in (("7", 10.0), ("9", 30.0), ("8", 20.0)):
        write(tmp_path, launched("slurm", number=number, time=time))
    assert [one.number for one in launched_jobs(tmp_path)] == ["9", "8", "7"]
    assert find(tmp_path, None).number == find(tmp_path, "llama-lora").number == "9"
    assert find(tmp_path, "7").number == find(tmp_path, "llama-lora-7").number == "7"


def test_a_damaged_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "slurm-a-1.json").write_text('{"target": "slurm"}')
    with pytest.raises(UsageError, match=r"slurm-a-1\.json: no record of a job"):
        launched_jobs(tmp_path)
