"""What a target's own program is told about a job that was sent: command lines, and nothing is run here."""

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from seatrial.errors import UsageError
from seatrial.launch.bash import FOLDER
from seatrial.launch.job import Job
from seatrial.launch.kubectl import kubectl
from seatrial.launch.ledger import Launched
from seatrial.launch.plan import Plan
from seatrial.launch.volumes import labels

KINDS = {"kubernetes": "job", "pytorchjob": "pytorchjob", "trainjob": "trainjob"}
"""What Kubernetes calls them."""

BELONGINGS = {
    "kubernetes": "job,service,configmap",
    "pytorchjob": "pytorchjob,configmap",
    "trainjob": "trainjob,trainingruntime,configmap",
}
"""What goes with a job. Claims stay: what lies in them is not the job's alone."""

NOT_FETCHED = ("checkpoints", "stalls", "heartbeats", ".lock")
"""Of a run directory: large, or of no use elsewhere."""

Commands = tuple[tuple[str, ...], ...]


def handle(target: str, name: str, submitted: str) -> str:
    """The number of :class:`Launched`, from what the program that submitted it printed."""
    return submitted.strip().splitlines()[-1].partition(";")[0] if target == "slurm" else name


def results(target: str, plan: Plan, number: str) -> PurePosixPath | None:
    """Where the job leaves what is worth fetching: an array of acceptances in its own folder."""
    if target == "slurm" and plan.job.slurm.nodewise:
        return plan.job.workdir / FOLDER / f"{plan.job.name}-{number}"
    return plan.results


def status(launched: Launched) -> Commands:
    match launched.target:
        case "slurm":
            return (("scontrol", "--oneliner", "show", "job", launched.number),)
        case "skypilot":
            return (("sky", "jobs", "queue"),)
        case "docker":
            return (("docker", "ps", "--all", "--filter", f"name=^{launched.name}$"),)
        case target if target in KINDS:
            chosen = ["--output=wide", f"--selector={_selector(launched)}"]
            return (
                tuple(kubectl(launched.job, "get", KINDS[target], launched.name)),
                tuple(kubectl(launched.job, "get", "pods", *chosen)),
            )
        case _:
            raise UsageError(f"{launched.name}: no program was asked to start it")


def logs(launched: Launched, *, follow: bool) -> tuple[str, ...]:
    match launched.target:
        case "slurm":
            return _tail(_slurm_logs(launched), follow=follow)
        case "torchrun":
            return _tail([launched.folder / "node-0.log"], follow=follow)
        case "skypilot":
            return ("sky", "jobs", "logs", "--name", launched.name, "--follow" if follow else "--no-follow")
        case "docker":
            return ("docker", "logs", *(["--follow"] if follow else []), launched.name)
        case _:
            many = [f"--selector={_selector(launched)}", "--prefix", "--tail=-1"]
            if follow:
                many += ["--follow", f"--max-log-requests={max(5, launched.job.nodes)}"]
            return tuple(kubectl(launched.job, "logs", *many))


def shell(launched: Launched, words: Sequence[str], pod: str = "") -> tuple[str, ...]:
    """``words`` on the first node, beside the job.

    Args:
        pod: of the first node, on Kubernetes; see :func:`pods`.
    """
    match launched.target:
        case "slurm":
            step = ["--overlap", "--nodes=1", "--ntasks=1", "--gpus=0", "--export=ALL", "--mpi=none"]
            return ("srun", f"--jobid={launched.number}", f"--chdir={launched.job.workdir}", *step, *words)
        case "docker":
            return ("docker", "exec", "--interactive", launched.name, *words)
        case target if target in KINDS:
            return tuple(kubectl(launched.job, "exec", "--stdin", pod, "--", *words))
        case "skypilot":
            raise UsageError(
                f"{launched.name}: a managed job of SkyPilot takes no further commands; `sky status --all-users` names "
                "its cluster, and `ssh CLUSTER` leads there"
            )
        case _:
            raise UsageError(f"{launched.name} runs on this machine: run the command here")


def pods(launched: Launched) -> tuple[str, ...]:
    """Names of the pods that run, the first node's first."""
    wanted = [f"--selector={_selector(launched)}", "--field-selector=status.phase=Running"]
    form = ["--sort-by=.metadata.name", "--output=jsonpath={.items[*].metadata.name}"]
    return tuple(kubectl(launched.job, "get", "pods", *wanted, *form))


def stop(launched: Launched) -> tuple[str, ...]:
    """Save, end, and do not come back."""
    match launched.target:
        case "slurm":
            return ("scancel", "--batch", "--signal=TERM", launched.number)
        case "skypilot":
            return ("sky", "jobs", "cancel", "--yes", "--name", launched.name)
        case "docker":
            return ("docker", "stop", f"--time={launched.job.grace_seconds}", launched.name)
        case target if target in KINDS:
            chosen = f"--selector={_selector(launched)}"
            return tuple(kubectl(launched.job, "delete", BELONGINGS[target], chosen, "--wait=false"))
        case _:
            return ("kill", "-TERM", launched.number)


def reader(job: Job) -> Job:
    """A job that only sees the mounts that nodes share, without a GPU, for as long as results are copied."""
    ending = "-fetch"
    changes = {
        "name": job.name[: 40 - len(ending)].rstrip("-") + ending,
        "verb": "command",
        "config": None,
        "arguments": ("sleep", "3600"),
        "stage": (),
        "nodes": 1,
        "min_nodes": None,
        "gpus_per_node": 0,
        "processes_per_node": 1,
        "cpus_per_node": 1,
        "memory_gib": None,
        "shm_gib": 1,
        "run_dir": None,
        "mounts": tuple(mount for mount in job.mounts if mount.kind == "shared"),
        "secrets": (),
        "fabric": "none",
        "time_limit_hours": 1.0,
        "retries": 0,
        "acceptance": None,
    }
    return Job.model_validate({**job.model_dump(), **changes})


def archive(launched: Launched) -> tuple[str, ...]:
    """On a node: the results as a tar archive on stdout.

    Raises:
        UsageError: only the job itself knows where they are.
    """
    if launched.results is None:
        raise UsageError(f"{launched.name}: {launched.job.verb} leaves no results in a known place; use `launch exec`")
    left = [f"--exclude=./{name}" for name in NOT_FETCHED]
    return ("tar", "--create", *left, f"--directory={launched.results}", ".")


def _selector(launched: Launched) -> str:
    return ",".join(f"{name}={value}" for name, value in labels(launched.job).items())


def _slurm_logs(launched: Launched) -> list[Path]:
    tasks = [f"_{task}" for task in range(launched.job.nodes)] if launched.job.slurm.nodewise else [""]
    return [Path(launched.job.workdir, f"{launched.name}-{launched.number}{task}.out") for task in tasks]


def _tail(files: Sequence[Path], *, follow: bool) -> tuple[str, ...]:
    return ("tail", "--lines=+1", *(["--follow=name", "--retry"] if follow else []), *(str(file) for file in files))
