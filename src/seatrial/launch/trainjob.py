"""A job as a TrainJob of Kubeflow Trainer v2, with a TrainingRuntime of its own.

The runtimes that are installed with Trainer start no pod again by its exit code. Ours lets JobSet start all pods again
whenever one of them failed, so that none waits for another's successor.
"""

from seatrial.errors import Preempted, SettingsError
from seatrial.launch.job import Job, Rendered, final_codes
from seatrial.launch.kubectl import for_kubectl
from seatrial.launch.manifest import Object, commented, commented_list
from seatrial.launch.pod import DEADLINE, deadline_seconds, dns_search, metadata, pod_template, success_policy
from seatrial.launch.volumes import claims, config_map

_API = "trainer.kubeflow.org"
_CONTAINER = "node"


def render_trainjob(job: Job, config_text: str | None, excluded: tuple[str, ...] = ()) -> Rendered:
    """The TrainingRuntime and the TrainJob, and apart from them what they need.

    Args:
        config_text: of the settings file, when the verb has one.
        excluded: names of nodes that are not used.

    Raises:
        SettingsError: Trainer cannot do what the job says; in one line.
    """
    if job.min_nodes is not None:
        raise SettingsError(
            f"job.min_nodes = {job.min_nodes}: Kubeflow Trainer has no elastic jobs; leave it out, or take pytorchjob"
        )
    needs = [*claims(job), *([config_map(job, config_text)] if config_text is not None else [])]
    return for_kubectl(job, [_runtime(job, config_text, excluded), _trainjob(job)], needs)


def _trainjob(job: Job) -> Object:
    spec = {
        "runtimeRef": {"apiGroup": _API, "kind": "TrainingRuntime", "name": job.name},
        "activeDeadlineSeconds": deadline_seconds(job),
        "trainer": {"numNodes": job.nodes, "numProcPerNode": job.processes},
    }
    return {
        "apiVersion": f"{_API}/v1alpha1",
        "kind": "TrainJob",
        "metadata": metadata(job),
        "spec": commented(spec, {"activeDeadlineSeconds": DEADLINE}),
    }


def _runtime(job: Job, config_text: str | None, excluded: tuple[str, ...]) -> Object:
    set_spec = {
        "failurePolicy": {"maxRestarts": job.retries, "rules": _answers()},
        "replicatedJobs": [
            {
                "name": "node",
                "template": {
                    "metadata": {"labels": {f"{_API}/trainjob-ancestor-step": "trainer"}},
                    "spec": _nodes(job, config_text, excluded),
                },
            }
        ],
    }
    of_job = metadata(job)
    labels = {name: value for name, value in of_job["labels"].items() if not name.startswith("kueue")}
    return {
        "apiVersion": f"{_API}/v1alpha1",
        "kind": "TrainingRuntime",
        "metadata": {**of_job, "labels": {**labels, f"{_API}/framework": "torch"}},
        "spec": {"mlPolicy": {"numNodes": job.nodes, "torch": {}}, "template": {"spec": set_spec}},
    }


def _answers() -> list[Object]:
    """Of JobSet, to the Job that holds all pods and fails as soon as one of them does. Which of its rules it failed by
    stands in its message alone."""
    by_rule = {"onJobFailureReasons": ["PodFailurePolicy"]}
    final = {
        "name": "final",
        "action": "FailJobSet",
        **by_rule,
        "onJobFailureMessagePatterns": ["rule at index 0$"],
    }
    preempted = {"name": "preempted", "action": "RestartJobSetAndIgnoreMaxRestarts", **by_rule}
    return commented_list(
        [
            (final, "the first rule of podFailurePolicy below: a new start would end the same way"),
            (preempted, "its other rules: all are started again, and it is not counted"),
        ]
    )


def _nodes(job: Job, config_text: str | None, excluded: tuple[str, ...]) -> Object:
    disrupted = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    rules = commented_list(
        [
            (_on_codes(final_codes(job)), "first, since JobSet counts them"),
            (_on_codes([Preempted.exit_code]), "saved when asked to stop"),
            (disrupted, "drained, preempted, or its node lost"),
        ]
    )
    template = pod_template(
        job,
        config_text,
        excluded,
        container={"name": _CONTAINER},
        place=[],
        pod={"restartPolicy": "Never", **dns_search(job)},
    )
    spec = {
        "backoffLimit": 0,
        "podFailurePolicy": {"rules": rules},
        **success_policy(job),
        "template": template,
    }
    return commented(spec, {"backoffLimit": "JobSet starts all pods again, never one of them"})


def _on_codes(codes: list[int]) -> Object:
    return {"action": "FailJob", "onExitCodes": {"containerName": _CONTAINER, "operator": "In", "values": codes}}
