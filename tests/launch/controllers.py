"""What the controllers of Kubernetes, the training operator, JobSet and SkyPilot do with a manifest: which pods there
are, what they are told, and what becomes of one that fails. The pods themselves are real (tests.launch.pods).
"""

import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.launch.pods import Cluster, Pod

Object = dict[str, Any]
Answer = Literal["fail", "one", "all"]
"""To a failed pod: the job fails; this pod is started again; all are."""

BACKOFF_SECONDS = 2.0
"""Kubernetes waits 10 s before it replaces a failed pod, and twice as long each time."""


@dataclass(frozen=True)
class Seat:
    """A pod that the job shall have, whoever sits on it at the moment."""

    pod: str
    names: tuple[str, ...]
    told: Mapping[str, str]


@dataclass(frozen=True)
class Controlled:
    """A job as its controller sees it.

    Attributes:
        answer: what to do about a pod that failed with this code, disrupted by others or not, and whether it counts.
        limit: of counted failures: of each seat, or of all where all start again.
        succeeds: the seats that have to succeed.
    """

    seats: tuple[Seat, ...]
    spec: Object
    answer: Callable[[int, bool], tuple[Answer, bool]]
    limit: int
    succeeds: tuple[int, ...]


def indexed_job(job: Object) -> Controlled:
    """batch/v1 Job, completionMode Indexed."""
    name, spec = job["metadata"]["name"], job["spec"]
    pod = spec["template"]["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["parallelism"] == spec["completions"]
    assert pod["restartPolicy"] == "Never", "podFailurePolicy takes no other"

    def answer(code: int, disrupted: bool) -> tuple[Answer, bool]:
        rule = rule_of(spec, code, disrupted)
        if rule is None:
            return "one", True
        return ("fail" if spec["podFailurePolicy"]["rules"][rule]["action"] == "FailJob" else "one"), False

    seats = tuple(
        Seat(
            f"{name}-{index}",
            (f"{name}-{index}.{pod['subdomain']}",),
            {
                "JOB_COMPLETION_INDEX": str(index),
                "metadata.annotations['batch.kubernetes.io/job-completion-index']": str(index),
            },
        )
        for index in range(spec["completions"])
    )
    return Controlled(seats, pod, answer, spec["backoffLimitPerIndex"], _succeeds(spec, len(seats)))


def rule_of(job_spec: Object, code: int, disrupted: bool) -> int | None:
    """Which rule of a Job's podFailurePolicy is the first that a failed pod fits."""
    for at, rule in enumerate(job_spec["podFailurePolicy"]["rules"]):
        conditions = {condition["type"] for condition in rule.get("onPodConditions", [])}
        if code in rule.get("onExitCodes", {}).get("values", []) or (disrupted and "DisruptionTarget" in conditions):
            return at
    return None


def _succeeds(job_spec: Object, pods: int) -> tuple[int, ...]:
    rules = job_spec.get("successPolicy", {}).get("rules", [])
    return tuple(int(rule["succeededIndexes"]) for rule in rules) or tuple(range(pods))


def pytorch_job(job: Object) -> Controlled:
    """kubeflow.org/v1 PyTorchJob, as the training operator 1.9 has it."""
    name, spec = job["metadata"]["name"], job["spec"]
    kinds = spec["pytorchReplicaSpecs"]
    replicas = [
        (kind, index) for kind in ("Master", "Worker") if kind in kinds for index in range(kinds[kind]["replicas"])
    ]
    first = kinds[replicas[0][0]]
    assert all(kinds[kind]["restartPolicy"] == "ExitCode" for kind in kinds)
    (port,) = first["template"]["spec"]["containers"][0]["ports"]
    assert (first["template"]["spec"]["containers"][0]["name"], port["name"]) == ("pytorch", "pytorchjob-port")
    told = {"PET_NPROC_PER_NODE": spec["nprocPerNode"], "PET_NNODES": str(len(replicas)), "PYTHONUNBUFFERED": "1"}
    if "elasticPolicy" in spec:
        policy = spec["elasticPolicy"]
        told |= {
            "PET_NNODES": f"{policy['minReplicas']}:{policy['maxReplicas']}",
            "PET_RDZV_ENDPOINT": f"{name}-worker-0:{port['containerPort']}",
            "PET_RDZV_BACKEND": policy["rdzvBackend"],
            "PET_RDZV_ID": policy["rdzvId"],
            "PET_RDZV_CONF": ",".join(f"{each['key']}={each['value']}" for each in policy["rdzvConf"]),
            "PET_MAX_RESTARTS": str(policy["maxRestarts"]),
        }

    def of_master(rank: int) -> dict[str, str]:
        if "Master" not in kinds:
            return {}
        master = {"MASTER_ADDR": f"{name}-master-0", "MASTER_PORT": str(port["containerPort"])}
        world = {"WORLD_SIZE": str(len(replicas) * int(spec["nprocPerNode"])), "RANK": str(rank)}
        return {**world, **master, **{f"PET_{key}": value for key, value in master.items()}, "PET_NODE_RANK": str(rank)}

    def answer(code: int, disrupted: bool) -> tuple[Answer, bool]:
        return ("one" if code >= 128 or disrupted else "fail"), False

    seats = tuple(
        Seat(f"{name}-{kind.lower()}-{index}", (), told | of_master(rank))
        for rank, (kind, index) in enumerate(replicas)
    )
    return Controlled(seats, first["template"]["spec"], answer, 0, (0,))


def train_job(runtime: Object, job: Object) -> Controlled:
    """trainer.kubeflow.org/v1alpha1 TrainJob with its TrainingRuntime: a JobSet of one Job."""
    name, trainer = job["metadata"]["name"], job["spec"]["trainer"]
    reference = job["spec"]["runtimeRef"]
    assert (reference["kind"], reference["name"]) == ("TrainingRuntime", runtime["metadata"]["name"])
    of_set = runtime["spec"]["template"]["spec"]
    (replicated,) = of_set["replicatedJobs"]
    assert replicated["template"]["metadata"]["labels"]["trainer.kubeflow.org/trainjob-ancestor-step"] == "trainer"
    spec = replicated["template"]["spec"]
    pod = spec["template"]["spec"]
    assert (pod["restartPolicy"], pod["containers"][0]["name"], spec["backoffLimit"]) == ("Never", "node", 0)

    def answer(code: int, disrupted: bool) -> tuple[Answer, bool]:
        at = rule_of(spec, code, disrupted)
        reason = "BackoffLimitExceeded" if at is None else "PodFailurePolicy"
        message = (
            "Job has reached the specified backoff limit" if at is None else f"matching FailJob rule at index {at}"
        )
        for rule in of_set["failurePolicy"]["rules"]:
            patterns = rule.get("onJobFailureMessagePatterns", [""])
            if reason in rule["onJobFailureReasons"] and any(re.search(pattern, message) for pattern in patterns):
                return ("fail" if rule["action"] == "FailJobSet" else "all"), "IgnoreMaxRestarts" not in rule["action"]
        return "all", True

    seats = tuple(
        Seat(
            f"{name}-node-0-{index}",
            (f"{name}-node-0-{index}.{name}",),
            {
                "PET_NNODES": str(trainer["numNodes"]),
                "PET_NPROC_PER_NODE": str(trainer["numProcPerNode"]),
                "PET_NODE_RANK": str(index),
                "PET_MASTER_ADDR": f"{name}-node-0-0.{name}",
                "PET_MASTER_PORT": "29500",
                "JOB_COMPLETION_INDEX": str(index),
            },
        )
        for index in range(trainer["numNodes"])
    )
    return Controlled(seats, pod, answer, of_set["failurePolicy"]["maxRestarts"], _succeeds(spec, len(seats)))


def sky_job(task: Object) -> Controlled:
    """A managed job of SkyPilot on two machines or more: all end with one, and by its code all start again or none."""
    name, recovery = task["name"], task["resources"]["job_recovery"]
    nodes = [f"{name}-{index}" for index in range(task["num_nodes"])]
    volumes = [
        {"name": f"volume-{at}", "persistentVolumeClaim": {"claimName": claim}}
        for at, claim in enumerate(task["volumes"].values())
    ]
    spec = {
        "terminationGracePeriodSeconds": 60,
        "volumes": volumes,
        "containers": [
            {
                "command": ["bash", "-c", task["run"].replace("$", "$$")],
                "workingDir": "/root",
                "env": [],
                "volumeMounts": [
                    {"name": f"volume-{at}", "mountPath": path} for at, path in enumerate(task["volumes"])
                ],
            }
        ],
    }

    def answer(code: int, disrupted: bool) -> tuple[Answer, bool]:
        return "all", code not in recovery["recover_on_exit_codes"]

    told = {
        "SKYPILOT_NUM_NODES": str(len(nodes)),
        "SKYPILOT_NUM_GPUS_PER_NODE": "0",
        "SKYPILOT_NODE_IPS": "\n".join(nodes),  # names, since the stand-ins for machines get their addresses later
    }
    seats = tuple(Seat(node, (), {**told, "SKYPILOT_NODE_RANK": str(rank)}) for rank, node in enumerate(nodes))
    return Controlled(seats, spec, answer, recovery["max_restarts_on_errors"], tuple(range(len(nodes))))


@dataclass
class Run:
    """A job that is controlled: its pods at the moment, and all that ended, with their codes."""

    cluster: Cluster
    controlled: Controlled
    pods: dict[int, Pod] = field(default_factory=dict)
    ended: list[tuple[int, int]] = field(default_factory=list)
    failures: dict[int, int] = field(default_factory=dict)
    succeeded: set[int] = field(default_factory=set)

    def start(self, seats: Sequence[int] | None = None) -> None:
        for at in seats if seats is not None else range(len(self.controlled.seats)):
            seat = self.controlled.seats[at]
            self.pods[at] = self.cluster.start(seat.pod, self.controlled.spec, names=seat.names, told=seat.told)

    def until(self, true: Callable[[], bool], *, timeout_seconds: float = 300) -> None:
        """Go on until something is so.

        Raises:
            AssertionError: the job ended before, or it took too long.
        """
        deadline = time.monotonic() + timeout_seconds
        while not true():
            assert self._go_on() is None, f"the job ended\n{self.logs()}"
            assert time.monotonic() < deadline, f"it takes too long\n{self.logs()}"
            time.sleep(0.1)

    def end(self, *, timeout_seconds: float = 300) -> str:
        """Go on to the end: "complete" or "failed"."""
        deadline = time.monotonic() + timeout_seconds
        while (result := self._go_on()) is None:
            assert time.monotonic() < deadline, f"it takes too long\n{self.logs()}"
            time.sleep(0.1)
        return result

    def _go_on(self) -> str | None:
        for at, pod in list(self.pods.items()):
            code = pod.exit_code()
            if code is None:
                continue
            del self.pods[at]
            self.ended.append((at, code))
            if code == 0:
                self.succeeded.add(at)
                continue
            answer, counts = self.controlled.answer(code, pod.disrupted)
            place = at if answer == "one" else -1
            self.failures[place] = self.failures.get(place, 0) + counts
            if answer == "fail" or self.failures[place] > self.controlled.limit:
                return "failed"
            if answer == "all":
                self._stop_all()
            time.sleep(BACKOFF_SECONDS)
            self.start([at] if answer == "one" else None)
        return "complete" if self.succeeded.issuperset(self.controlled.succeeds) else None

    def _stop_all(self) -> None:
        for pod in self.pods.values():
            if pod.exit_code() is None:
                self.cluster.evict(pod)
        for at, pod in self.pods.items():
            pod.process.wait(self.controlled.spec["terminationGracePeriodSeconds"])
            self.ended.append((at, pod.exit_code() or 0))
        self.pods.clear()

    def logs(self) -> str:
        logs = sorted(self.cluster.folder.glob("*.log"), key=lambda log: log.stat().st_mtime)
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}" for log in logs)
