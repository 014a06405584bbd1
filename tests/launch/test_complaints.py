"""What the targets' programs were recorded to say, and what a user is told."""

import pytest

from seatrial.launch.complaints import complaint
from seatrial.shell import Output, run

RECORDED = [
    (
        "sbatch",
        "sbatch: error: invalid partition specified: nope\n"
        "sbatch: error: Batch job submission failed: Invalid partition name specified\n",
        "sbatch: Batch job submission failed: Invalid partition name specified; `sinfo --summarize`",
    ),
    (
        "sbatch",
        "sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
        "`sinfo -N -o",
    ),
    (
        "sbatch",
        "sbatch: unrecognized option '--container-image=x'\nTry \"sbatch --help\" for more information\n",
        "sbatch: unrecognized option '--container-image=x'; this Slurm has no such option: for containers",
    ),
    ("sbatch", "sbatch: error: Batch job submission failed: Invalid node name specified\n", "`sinfo -N` lists nodes"),
    ("sbatch", "sbatch: error: Batch job submission failed: Requested reservation is invalid\n", "show reservation`"),
    (
        "sbatch",
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)\n",
        "`scontrol ping`",
    ),
    (
        "sbatch",
        "sbatch: error: fetch_config: DNS SRV lookup failed\nsbatch: error: _establish_config_source: failed to fetch "
        "config\nsbatch: fatal: Could not establish a configuration source\n",
        "is SLURM_CONF the right one?",
    ),
    ("scontrol", "slurm_load_jobs error: Invalid job id specified\n", "`sacct --jobs=NUMBER`"),
    ("scancel", "scancel: error: Kill job error on job id 99: Invalid job id specified\n", "`sacct --jobs=NUMBER`"),
    (
        "kubectl",
        "Error in configuration: context was not found for specified context: nope\n",
        "`kubectl config get-contexts` lists them; set job.kubernetes.context",
    ),
    (
        "kubectl",
        "The connection to the server localhost:8080 was refused - did you specify the right host or port?\n",
        "`kubectl cluster-info`",
    ),
    (
        "kubectl",
        'Error from server (Forbidden): error when creating "t.yaml": jobs.batch "t" is forbidden: exceeded quota: '
        "gpu, requested: requests.nvidia.com/gpu=16, used: requests.nvidia.com/gpu=8, limited: "
        "requests.nvidia.com/gpu=16\n",
        "`kubectl describe quota`",
    ),
    ("kubectl", 'Error from server (AlreadyExists): jobs.batch "t" already exists\n', "`seatrial launch stop NAME`"),
    ("kubectl", 'Error from server (NotFound): namespaces "ml" not found\n', "`kubectl get namespaces`"),
    (
        "kubectl",
        'error: resource mapping not found for name: "t" namespace: "default" from "t.yaml": no matches for kind '
        '"PyTorchJob" in version "kubeflow.org/v1"\nensure CRDs are installed first\n',
        "without Kubeflow's operator use `seatrial launch kubernetes`",
    ),
    (
        "docker",
        "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n",
        "sudo systemctl start docker",
    ),
]


@pytest.mark.parametrize(("program", "said", "told"), RECORDED)
def test_a_refusal_ends_in_what_to_type(program: str, said: str, told: str) -> None:
    line = complaint(Output((program, "x"), 1, "", said, 0.1))
    assert told in line
    assert line.startswith(f"{program}: ")
    assert "\n" not in line


@pytest.mark.parametrize("program", ["sbatch", "kubectl", "sky", "docker"])
def test_a_program_that_is_not_there(program: str) -> None:
    answer = run([f"/nowhere/{program}"], timeout_seconds=5)
    missing = complaint(Output((program,), None, "", f"{program}: no such program", 0.0))
    assert answer.returncode is None and answer.stderr.endswith("no such program")
    assert missing.startswith(f"{program} is not installed here; ")
    assert missing.endswith("or use --dry-run")


def test_what_nobody_foresaw_is_shown_with_the_command() -> None:
    answer = Output(("sbatch", "a b"), 1, "", "sbatch: error: it rains\n", 0.1)
    assert complaint(answer) == "sbatch: it rains; run it by hand to see more: sbatch 'a b'"
