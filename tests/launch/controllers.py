"""What the controllers of Kubernetes, the training operator and JobSet do with a manifest: which pods there are, what
they are told, and what becomes of one that fails. The pods themselves are real (tests.launch.pods).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.launch.pods import Cluster, Pod

Object = dict[str, Any]
Answer = Literal["fail", "one", "all", "uncounted"]
"""To a failed pod: the job fails; this pod is started again; all are; this one is, and it does not count."""

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
        answer: what to do about a pod that failed with this code, disrupted by others or not.
        limit: of counted failures: of each seat, or of all where all start again.
        succeeds: the seats that have to succeed.
    """

    seats: tuple[Seat, ...]
    spec: Object
    answer: Callable[[int, bool], Answer]
    limit: int
    succeeds: tuple[int, ...]


def indexed_job(job: Object) -> Controlled:
    """batch/v1 Job, completionMode Indexed."""
    name, spec = job["metadata"]["name"], job["spec"]
    pod = spec["template"]["spec"]
    assert spec["completionMode"] == "Indexed"
    assert spec["parallelism"] == spec["completions"]
    assert pod["restartPolicy"] == "Never", "podFailurePolicy takes no other"

    def answer(code: int, disrupted: bool) -> Answer:
        for rule in spec["podFailurePolicy"]["rules"]:
            conditions = {condition["type"] for condition in rule.get("onPodConditions", [])}
            if code in rule.get("onExitCodes", {}).get("values", []) or (disrupted and "DisruptionTarget" in conditions):
                return "fail" if rule["action"] == "FailJob" else "uncounted"
        return "one"

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
    rules = spec.get("successPolicy", {}).get("rules", [])
    succeeds = tuple(int(rule["succeededIndexes"]) for rule in rules) or tuple(range(len(seats)))
    return Controlled(seats, pod, answer, spec["backoffLimitPerIndex"], succeeds)


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
            match self.controlled.answer(code, pod.disrupted):
                case "fail":
                    return "failed"
                case "uncounted":
                    self._again([at])
                case "one":
                    self.failures[at] = self.failures.get(at, 0) + 1
                    if self.failures[at] > self.controlled.limit:
                        return "failed"
                    self._again([at])
                case "all":
                    self.failures[0] = self.failures.get(0, 0) + 1
                    if self.failures[0] > self.controlled.limit:
                        return "failed"
                    self._stop_all()
                    self._again(range(len(self.controlled.seats)))
        return "complete" if self.succeeded.issuperset(self.controlled.succeeds) else None

    def _stop_all(self) -> None:
        for pod in self.pods.values():
            if pod.exit_code() is None:
                self.cluster.evict(pod)
        for at, pod in self.pods.items():
            pod.process.wait(self.controlled.spec["terminationGracePeriodSeconds"])
            self.ended.append((at, pod.exit_code() or 0))
        self.pods.clear()

    def _again(self, seats: Sequence[int]) -> None:
        time.sleep(BACKOFF_SECONDS)
        self.start(seats)

    def logs(self) -> str:
        logs = sorted(self.cluster.folder.glob("*.log"), key=lambda log: log.stat().st_mtime)
        return "\n".join(f"--- {log.name}\n{log.read_text(errors='replace')[-4000:]}" for log in logs)
