"""What is to run, on how many GPUs, and with what around it: the one file that every target is rendered from.

Every target does the same once a node: it sets :data:`NODE_VARIABLES` and runs :func:`node_command`. Those variables
are torchrun's own, which is why Kubeflow's controllers set them unasked.
"""

from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from seatrial import errors
from seatrial.records import Frozen
from seatrial.settings import NotNegative, Positive

NODE_VARIABLES = ("PET_NNODES", "PET_NPROC_PER_NODE", "PET_NODE_RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT")

CONFIG_VERBS = ("train", "drill")
"""Verbs whose first argument is a settings file, which travels with the job."""

VERDICT_VERBS = ("accept", "bench", "drill", "eval")
"""Verbs whose exit code may be a verdict."""

MARGIN_SECONDS = 30
"""Of ``job.grace_seconds``, for everything but the save: signals are passed on, ranks and their launchers end."""

Name = Annotated[str, StringConstraints(pattern=r"^[a-z]([-a-z0-9]{0,38}[a-z0-9])?$")]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
Line = Annotated[str, StringConstraints(pattern=r"^[^\x00\r\n]+$")]
"""Text that goes into a directive of one line."""


class Mount(Frozen):
    """A directory that the job sees."""

    path: PurePosixPath = Field(description="where the job sees it, such as /mnt/data")
    kind: Literal["shared", "disk", "scratch"] = Field(
        "shared", description="'shared' by all nodes; 'disk': a network disk of one node; 'scratch': local and lost"
    )
    source: Line | None = Field(
        None,
        description="what is mounted: a claim (Kubernetes), a volume (SkyPilot), a directory of the host (Slurm, "
        "Docker); null: the same path; on Kubernetes a claim is made",
    )
    size_gib: Positive | None = Field(None, description="of a claim or volume that is made")
    storage_class: Line | None = None


class SlurmSettings(Frozen):
    """Slurm and Soperator."""

    partition: Line | None = None
    account: Line | None = None
    qos: Line | None = None
    reservation: Line | None = None
    nodewise: bool = Field(
        False, description="accept: every node by itself as soon as it is free, as an array of job.nodes tasks"
    )


class KubernetesSettings(Frozen):
    """Kubernetes, Kubeflow, and SkyPilot where it runs on Kubernetes."""

    namespace: Name = "default"
    context: Line | None = Field(None, description="of kubectl; null: the current one")
    queue: Line | None = Field(None, description="a LocalQueue of Kueue")
    secret: Name = Field("seatrial", description="the Secret that holds job.secrets, by the same names")
    service_account: Name | None = None
    image_pull_secret: Name | None = None
    rdma: dict[Line, Positive] = Field(
        default_factory=dict,
        description="what hands InfiniBand devices to a pod, as the cluster's device plugin names it, such as "
        "{rdma/ib: 8}; none: pods are privileged where job.fabric is infiniband",
    )
    topology: Line | None = Field(
        None, description="a label of nodes; those for which it is the same are near each other, and preferred"
    )


class SkypilotSettings(Frozen):
    """SkyPilot."""

    infra: Line = Field("k8s", description="k8s, k8s/CONTEXT, nebius, aws/us-east-1, slurm/..., as `sky` knows it")
    accelerator: Line = Field("H100", description="as `sky show-gpus` names it")


class Job(Frozen):
    """One job, on any target."""

    name: Name = Field(description="lower-case letters, digits and dashes, at most 40")
    verb: Literal["train", "accept", "eval", "bench", "drill", "data", "command"] = Field(
        "train", description="what seatrial does; 'command': job.arguments are a whole command line"
    )
    config: Path | None = Field(
        None, description="settings of train or drill, relative to the job file; their text travels with the job"
    )
    arguments: tuple[str, ...] = Field((), description="further arguments of the verb, such as optimizer.steps=100")
    stage: tuple[tuple[str, ...], ...] = Field(
        (),
        description="what --stage does once on CPUs, each the arguments of `seatrial data`, such as "
        "[fetch, OWNER/NAME, --to, /mnt/data/models/name]",
    )
    nodes: Positive = 1
    min_nodes: Positive | None = Field(None, description="elastic: go on with so few; null: all nodes or none")
    gpus_per_node: NotNegative = Field(8, description="0: on CPUs, in processes_per_node processes")
    processes_per_node: Positive | None = Field(None, description="null: one for each GPU")
    cpus_per_node: Positive | None = None
    memory_gib: Positive | None = Field(None, description="host memory of a node")
    shm_gib: Positive = Field(64, description="/dev/shm of a container, which NCCL and data workers share memory in")
    image: Line | None = Field(None, description="with seatrial in it; Slurm takes the venv where both are given")
    venv: PurePosixPath | None = Field(None, description="on the nodes, with seatrial in it; Slurm and torchrun")
    workdir: PurePosixPath = Field(description="where the job runs; relative paths of settings count from here")
    run_dir: PurePosixPath | None = Field(
        None, description="run.dir of a training, as the job sees it; null: as its settings say"
    )
    mounts: tuple[Mount, ...] = ()
    environment: dict[Variable, str] = Field(default_factory=dict)
    secrets: tuple[Variable, ...] = Field((), description="names of variables whose values never stand in a file")
    fabric: Literal["infiniband", "ethernet", "none"] = Field(
        "infiniband", description="what joins the nodes; chooses NCCL's environment"
    )
    time_limit_hours: Annotated[float, Field(gt=0)] = 24.0
    grace_seconds: Positive = Field(120, description="from being asked to stop to being killed")
    retries: NotNegative = Field(10, description="how often a job that failed or was preempted is started again")
    acceptance: Path | None = Field(None, description="acceptance.json; nodes that failed there are not used")
    slurm: SlurmSettings = SlurmSettings()
    kubernetes: KubernetesSettings = KubernetesSettings()
    skypilot: SkypilotSettings = SkypilotSettings()

    @model_validator(mode="after")
    def _consistent(self) -> "Job":
        if (self.config is not None) != (self.verb in CONFIG_VERBS):
            needs = "needs" if self.verb in CONFIG_VERBS else "takes no"
            raise ValueError(f"job.verb {self.verb} {needs} job.config")
        if self.verb == "command" and not self.arguments:
            raise ValueError("job.verb command needs job.arguments")
        if self.gpus_per_node == 0 and self.processes_per_node is None:
            raise ValueError("job.gpus_per_node 0 needs job.processes_per_node")
        if self.min_nodes is not None and self.min_nodes > self.nodes:
            raise ValueError(f"job.min_nodes {self.min_nodes} is more than job.nodes {self.nodes}")
        return self

    @property
    def processes(self) -> int:
        """Of a node."""
        return self.processes_per_node or self.gpus_per_node


class JobFile(Frozen):
    """What JOB.yaml holds."""

    job: Job


@dataclass(frozen=True)
class Rendered:
    """What is sent to a target, and how.

    Attributes:
        files: name and whole text of each; the first is the one a reader wants to see.
        submit: commands to run in order, with the names of ``files`` in them relative to where they are written.
    """

    files: tuple[tuple[str, str], ...]
    submit: tuple[tuple[str, ...], ...]


def node_command(job: Job, *, python: str, config: str | None) -> list[str]:
    """What every node runs, once: ``python -m seatrial.launch.node VERB [CONFIG] [ARGUMENT...]``.

    Args:
        python: that of the virtual environment, or the image's.
        config: where the settings file lies on the node.
    """
    words: list[str] = [config] if config is not None else []
    if job.verb == "train":
        words.append(f"run.grace_seconds={save_seconds(job)}")
    words += job.arguments
    if job.run_dir is not None and job.verb == "train":
        words.append(f"run.dir={job.run_dir}")
    return [python, "-m", "seatrial.launch.node", job.verb, *words]


def save_seconds(job: Job) -> int:
    """What ``job.grace_seconds`` leaves for the last save, before processes have to end and to say so."""
    return max(job.grace_seconds - MARGIN_SECONDS, (job.grace_seconds + 1) // 2)


def final_codes(job: Job) -> list[int]:
    """Exit codes that a new start does not change: verdicts, wrong settings, broken data, and what can never be."""
    verdicts = (errors.EXIT_VERDICT_FAIL, errors.EXIT_INCONCLUSIVE) if job.verb in VERDICT_VERBS else ()
    never = (errors.UsageError, errors.IntegrityError, errors.ImpossibleConfiguration)
    return sorted([*verdicts, *(error.exit_code for error in never)])
