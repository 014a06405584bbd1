"""The files of infra/accept: they parse, have the fields that their readers know, and the prolog is really run."""

import os
import subprocess
import sys
import time
from pathlib import Path
from string import Template
from typing import Any

import kubernetes_validate
import pytest
from ruamel.yaml import YAML

from seatrial.accept import catalogue
from seatrial.accept.inventory import take_inventory
from seatrial.settings import TrainSettings

INFRA = Path(__file__).parents[2] / "infra" / "accept"
PROLOG = INFRA / "slurm-prolog.sh"
SEATRIAL = Path(sys.executable).with_name("seatrial")


def loaded(name: str, **variables: str) -> Any:
    return YAML(typ="safe").load(Template((INFRA / name).read_text()).safe_substitute(variables))


def prolog(command: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """As slurmd runs it: by itself, with Slurm's variables of the job, which must not be taken for this node's."""
    job = {"SLURM_JOB_ID": "7", "SLURM_NTASKS": "16", "SLURM_PROCID": "3", "SLURM_NNODES": "2"}
    env = {"SEATRIAL": str(command), **job, **variables}
    return subprocess.run([PROLOG], capture_output=True, text=True, env=env, timeout=60, check=False)


def stub(folder: Path, script: str) -> Path:
    file = folder / "seatrial"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return file


def test_the_prolog_is_a_script_that_slurmd_can_run() -> None:
    assert subprocess.run(["bash", "-n", PROLOG], check=False).returncode == 0
    assert os.access(PROLOG, os.X_OK)
    (line,) = [line for line in PROLOG.read_text().splitlines() if line.startswith("CHECKS=")]
    assert {check.name for check in catalogue.choose(line.removeprefix("CHECKS=").split(","))}


def test_a_sound_node_starts_its_job_within_half_a_minute() -> None:
    began = time.monotonic()
    done = prolog(SEATRIAL)
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - began < 30


@pytest.mark.skipif(take_inventory().gpus > 0, reason="this machine has NVIDIA GPUs")
def test_a_node_that_lacks_its_gpus_is_drained_and_says_why() -> None:
    done = prolog(SEATRIAL, SEATRIAL_GPUS="8")
    assert done.returncode == 1
    assert "8 GPU(s) expected" in done.stderr


@pytest.mark.parametrize(
    ("script", "code", "says"),
    [
        ("exit 0", 0, ""),
        ("exit 1", 1, "failed"),
        ("exit 3", 1, "could not be tested"),
        ("sleep 60", 1, "gave no answer in 1 s"),
        ("echo 'error: --checks x: no such check' >&2; exit 2", 0, "no such check"),
    ],
)
def test_a_node_is_drained_for_its_own_faults_and_never_for_ours(
    script: str, code: int, says: str, tmp_path: Path
) -> None:
    done = prolog(stub(tmp_path, script), SEATRIAL_SECONDS="1")
    assert done.returncode == code, done.stderr
    assert says in done.stderr


def test_where_seatrial_is_not_installed_jobs_start_and_the_log_says_so(tmp_path: Path) -> None:
    done = prolog(tmp_path / "nowhere")
    assert done.returncode == 0
    assert "the look before the job did not run (code 127)" in done.stderr


# docs/active-checks.md of nebius/soperator, and api/v1alpha1/activecheck_types.go.
ACTIVE_CHECK = {
    *("name", "slurmClusterRefName", "checkType", "schedule", "suspend", "runAfterCreation", "dependsOn"),
    *("activeDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit", "slurmJobSpec", "k8sJobSpec"),
    *("successReactions", "failureReactions", "nodeSelector", "affinity", "tolerations", "podTemplateNameRef"),
}
SLURM_JOB = {"jobContainer", "mungeContainer", "sbatchScript", "sbatchScriptRefName", "eachWorkerJobs"}
CONTAINER = {"image", "command", "args", "env", "volumeMounts", "volumes", "appArmorProfile"}


def test_the_active_check_has_the_fields_that_soperator_documents(tmp_path: Path) -> None:
    check = loaded("soperator-activecheck.yaml", SLURM_CHECK_JOB_IMAGE="registry/job:1", MUNGE_IMAGE="registry/munge:1")
    assert (check["apiVersion"], check["kind"]) == ("slurm.nebius.ai/v1alpha1", "ActiveCheck")
    spec = check["spec"]
    assert set(spec) <= ACTIVE_CHECK and {"name", "slurmClusterRefName"} <= set(spec)
    assert spec["checkType"] == "slurmJob" and len(spec["schedule"].split()) == 5
    job = spec["slurmJobSpec"]
    assert set(job) <= SLURM_JOB and job["eachWorkerJobs"] is True
    assert set(job["jobContainer"]) <= CONTAINER and job["jobContainer"]["image"] == "registry/job:1"
    assert job["mungeContainer"] == {"image": "registry/munge:1"}
    assert spec["failureReactions"] == {"drainSlurmNode": {"drainReasonPrefix": "[node_problem]"}}
    script = tmp_path / "sbatch.sh"
    script.write_text(job["sbatchScript"])
    assert job["sbatchScript"].startswith("#!/bin/bash\n")
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
    # What a job may take fits the run, and the checks fit the job.
    assert spec["activeDeadlineSeconds"] > 3 * 3600 and "--time=00:40:00" in job["sbatchScript"]
    assert "--budget 20m" in job["sbatchScript"]


def test_the_init_container_is_a_valid_pod_whose_commands_exist() -> None:
    pod = loaded("init-container.yaml")
    kubernetes_validate.validate(pod, "1.33", strict=True)
    (accept,) = pod["spec"]["initContainers"]
    options = dict(zip(accept["command"][2::2], accept["command"][3::2], strict=True))
    assert accept["command"][:2] == ["seatrial", "accept"]
    assert catalogue.choose(options["--checks"].split(",")) and catalogue.seconds_of(options["--budget"]) == 60
    (work,) = pod["spec"]["containers"]
    section, _, name = work["command"][-1].partition("=")[0].partition(".")
    assert name in TrainSettings.model_fields[section].annotation.model_fields  # type: ignore[union-attr]
    out = options["--out"]
    assert work["command"][-1].endswith(f"={out}/acceptance.json")
    assert {mount["mountPath"] for mount in accept["volumeMounts"]} >= {out, "/dev/shm"}
    assert accept["resources"]["limits"] == work["resources"]["limits"]
