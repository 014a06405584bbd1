"""A job as a PyTorchJob of Kubeflow's training operator (1.8 or newer), which tells each pod which node it is.

The operator starts a failed pod again by its exit code alone: 128 and above may be started again, all else is final.
"""

from seatrial.dist.elastic import RENDEZVOUS
from seatrial.launch.job import Job, Rendered
from seatrial.launch.kubectl import for_kubectl
from seatrial.launch.manifest import Object, commented
from seatrial.launch.node import RETRY_CODE
from seatrial.launch.pod import DEADLINE, PORT, deadline_seconds, metadata, pod_template
from seatrial.launch.volumes import claims, config_map

AGAIN = 138
"""The one code above 128 that no signal of ours ends a process with, and that older operators start again too."""


def render_pytorchjob(job: Job, config_text: str | None, excluded: tuple[str, ...] = ()) -> Rendered:
    """The PyTorchJob, and apart from it what it needs. The operator makes the names that pods find each other by.

    Args:
        config_text: of the settings file, when the verb has one.
        excluded: names of nodes that are not used.

    Raises:
        SettingsError: Kubernetes cannot do what the job says; in one line.
    """
    needs = [*claims(job), *([config_map(job, config_text)] if config_text is not None else [])]
    return for_kubectl(job, [_pytorchjob(job, config_text, excluded)], needs)


def _pytorchjob(job: Job, config_text: str | None, excluded: tuple[str, ...]) -> Object:
    container = {"name": "pytorch", "ports": [{"name": "pytorchjob-port", "containerPort": PORT}]}
    again = ({"name": RETRY_CODE, "value": str(AGAIN)}, "the operator takes codes below 128 for final")

    def replicas(count: int) -> Object:
        template = pod_template(job, config_text, excluded, container=container, place=[again], pod={})
        return {"replicas": count, "restartPolicy": "ExitCode", "template": template}

    if job.min_nodes is not None:
        kinds = {"Worker": replicas(job.nodes)}
    else:
        kinds = {"Master": replicas(1), **({"Worker": replicas(job.nodes - 1)} if job.nodes > 1 else {})}
    policy = {"cleanPodPolicy": "Running", "activeDeadlineSeconds": deadline_seconds(job)}
    spec = {
        "nprocPerNode": str(job.processes),
        "runPolicy": commented(policy, {"activeDeadlineSeconds": DEADLINE}),
        **({"elasticPolicy": _elastic(job)} if job.min_nodes is not None else {}),
        "pytorchReplicaSpecs": kinds,
    }
    return {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "metadata": metadata(job), "spec": spec}


def _elastic(job: Job) -> Object:
    """The first worker holds the rendezvous: when it is lost, all start again."""
    return {
        "minReplicas": job.min_nodes,
        "maxReplicas": job.nodes,
        "maxRestarts": job.retries,
        "rdzvBackend": "c10d",
        "rdzvId": job.name,
        "rdzvConf": [{"key": name, "value": str(value)} for name, value in RENDEZVOUS.items()],
    }
