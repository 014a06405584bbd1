"""What the targets' programs say when they refuse, as one line that ends in what to type next. Pure."""

import re
import shlex

from seatrial.shell import Output

INSTALL = {
    "sbatch": "log in to the cluster's login node, where it is",
    "scontrol": "log in to the cluster's login node, where it is",
    "scancel": "log in to the cluster's login node, where it is",
    "srun": "log in to the cluster's login node, where it is",
    "kubectl": "install it (https://kubernetes.io/docs/tasks/tools), then `kubectl config get-contexts`",
    "sky": "pip install 'skypilot[kubernetes]', then `sky check`",
    "docker": "install Docker (https://docs.docker.com/engine/install), then `docker info`",
}

_EMPTY = r"^Try |is not recoverable|^command terminated with exit code"
"""Last lines that say nothing."""

_NEXT = (
    (r"invalid partition", "`sinfo --summarize` lists partitions; set job.slurm.partition"),
    (r"[Ii]nvalid account", "`sacctmgr show associations user=$USER` lists accounts; set job.slurm.account"),
    (r"reservation is invalid", "`scontrol show reservation` lists them; set job.slurm.reservation"),
    (r"[Ii]nvalid qos", "`sacctmgr show qos` lists them; set job.slurm.qos"),
    (
        r"Requested node configuration is not available|More processors requested",
        "`sinfo -N -o '%N %c %m %G'` lists what nodes have; ask for less in job.nodes, gpus_per_node and the like",
    ),
    (r"violates accounting/QOS policy", "`sacctmgr show qos` says what is allowed; ask for less"),
    (r"Requested time limit is invalid", "`sinfo -o '%P %l'` lists limits; lower job.time_limit_hours"),
    (
        r"Unable to contact slurm controller|establish a configuration source",
        "`scontrol ping` says whether Slurm is up; is SLURM_CONF the right one?",
    ),
    (r"Invalid job id", "Slurm has forgotten it; `sacct --jobs=NUMBER` may still know"),
    (r"[Uu]nrecognized option", "this Slurm has no such option: for containers it needs pyxis; else set job.venv"),
    (r"Invalid node name", "`sinfo -N` lists nodes; is job.acceptance that of this cluster?"),
    (r"exceeded quota", "`kubectl describe quota` shows what is used; ask for less, or wait"),
    (
        r"context .* does not exist|context was not found",
        "`kubectl config get-contexts` lists them; set job.kubernetes.context",
    ),
    (
        r"refused - did you specify the right host|[Uu]nable to connect to the server|was refused|no such host",
        "`kubectl cluster-info` says whether the cluster answers; `kubectl config use-context NAME` chooses another",
    ),
    (r"namespaces? .* not found", "`kubectl get namespaces` lists them; set job.kubernetes.namespace, or create it"),
    (
        r"AlreadyExists|already exists|is already in use",
        "end it with `seatrial launch stop NAME`, or choose another job.name",
    ),
    (r'no matches for kind "PyTorchJob"', "without Kubeflow's operator use `seatrial launch kubernetes`"),
    (r'no matches for kind "TrainJob"', "without Kubeflow Trainer 2 use `seatrial launch kubernetes`"),
    (r"[Ff]orbidden", "`kubectl auth can-i create jobs` says what you may do; ask whoever runs the cluster"),
    (
        r"[Uu]nauthorized|must be logged in|credentials",
        "log in again, as your provider says; `kubectl auth whoami` tests it",
    ),
    (
        r"Cannot connect to the Docker daemon|docker daemon running",
        "start it: `sudo systemctl start docker`; `docker info` tests it",
    ),
    (r"pull access denied|manifest unknown|[Nn]o such image", "`docker login` if it is private; set job.image"),
    (r"could not select device driver", "install the NVIDIA Container Toolkit; `docker info` lists its runtime"),
    (r"[Vv]olume.*not found", "`sky volumes ls` lists volumes; create it with `sky volumes apply`"),
    (r"No enabled infra|no infra|not enabled", "`sky check` says which clouds are set up"),
)


def complaint(answer: Output) -> str:
    """Program, what it said last, and the next command."""
    program = answer.argv[0]
    if answer.returncode is None and answer.stderr.endswith("no such program"):
        return f"{program} is not installed here; {INSTALL.get(program, 'install it')}, or use --dry-run"
    lines = [line.strip() for line in (answer.stderr or answer.stdout).splitlines() if line.strip()]
    lines = [line for line in lines if not re.search(_EMPTY, line)] or lines
    said = (
        lines[-1].removeprefix(f"{program}: ").removeprefix("error: ") if lines else f"ended with {answer.returncode}"
    )
    whole = "\n".join(lines)
    advice = next((advice for pattern, advice in _NEXT if re.search(pattern, whole)), "")
    return f"{program}: {said}; {advice or 'run it by hand to see more: ' + shlex.join(answer.argv)}"
