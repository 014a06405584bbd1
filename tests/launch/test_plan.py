"""What a job file refers to is read and checked before anything is rendered."""

import json
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from seatrial.acceptance import Acceptance, NodeGrade
from seatrial.errors import UsageError
from seatrial.launch.plan import read_plan, render, staging_plans
from seatrial.records import Verdict
from tests.launch.jobs import training
from tests.small import settings_for, write_config


def job_file(folder: Path, **changes: Any) -> Path:
    write_config(settings_for(folder), folder / "llama.yaml")
    file = folder / "job.yaml"
    file.write_text(json.dumps({"job": training(4, **changes).model_dump(mode="json")}))
    return file


def test_nodes_that_failed_their_acceptance_are_left_out(tmp_path: Path) -> None:
    grades = (("worker-1", Verdict.PASS), ("worker-2", Verdict.FAIL), ("worker-3", Verdict.INCONCLUSIVE))
    accepted = Acceptance(
        verdict=Verdict.FAIL,
        checks=(),
        provenance={},
        seconds=1.0,
        culprits=({"host": "worker-4", "kind": "bad GPU"},),
        nodes=tuple(NodeGrade(host=host, verdict=verdict) for host, verdict in grades),
    )
    (tmp_path / "acceptance.json").write_text(accepted.model_dump_json())
    plan = read_plan(job_file(tmp_path, acceptance="acceptance.json"))
    assert plan.excluded == ("worker-2", "worker-4")
    assert "#SBATCH --exclude=worker-2,worker-4\n" in render("slurm", plan).files[0][1]


def test_settings_travel_as_they_are(tmp_path: Path) -> None:
    plan = read_plan(job_file(tmp_path, run_dir=None), ["job.nodes=2"])
    assert plan.config_text == (tmp_path / "llama.yaml").read_text()
    assert plan.config_text in render("slurm", plan).files[0][1]
    assert (plan.job.nodes, plan.results) == (2, PurePosixPath(tmp_path / "run"))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arguments": ("optimizer.stepps=3",)}, "did you mean optimizer.steps?"),
        ({"config": "none.yaml"}, "no such settings file"),
        ({"acceptance": "none.json"}, "cannot be read"),
    ],
)
def test_what_is_wrong_is_told_first(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    file = job_file(tmp_path, **changes)
    with pytest.raises(UsageError) as told:
        read_plan(file)
    assert said in str(told.value)


def test_results_of_an_acceptance_are_where_it_was_told(tmp_path: Path) -> None:
    told = {"verb": "accept", "config": None, "run_dir": None}
    assert read_plan(job_file(tmp_path, **told, arguments=("--out", "a"))).results == PurePosixPath("/mnt/data/work/a")
    assert read_plan(job_file(tmp_path, **told, arguments=("--out=/b",))).results == PurePosixPath("/b")


def test_staging_takes_no_gpu(tmp_path: Path) -> None:
    stage = (("fetch", "owner/name", "--to", "/mnt/data/models/name"),)
    (staged,) = staging_plans(read_plan(job_file(tmp_path, stage=stage)), "slurm")
    ((_, script),) = render("slurm", staged).files
    assert "gpus-per-node" not in script
    assert "--mem=0" not in script
    assert "fetch \\\n    owner/name" in script
