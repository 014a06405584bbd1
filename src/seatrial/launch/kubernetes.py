"""A job as an Indexed Job of plain Kubernetes (1.31 or newer): one pod a node, nothing to be installed.

Pods find each other by name, so that one that is started again elsewhere is found again. One that is lost takes no
other with it: a watchdog in each of them ends the ranks that would wait for it, the launchers start theirs again, and
all meet when the new pod is there.
"""

from seatrial.errors import Preempted
from seatrial.launch.job import Job, Rendered, final_codes
from seatrial.launch.kubectl import for_kubectl
from seatrial.launch.manifest import Object, commented, commented_list
from seatrial.launch.pod import DEADLINE, PORT, deadline_seconds, dns_search, metadata, pod_template, success_policy
from seatrial.launch.volumes import claims, config_map, labels

_CONTAINER = "seatrial"
_INDEX = "metadata.annotations['batch.kubernetes.io/job-completion-index']"


def render_kubernetes(job: Job, config_text: str | None, excluded: tuple[str, ...] = ()) -> Rendered:
    """The Job, and apart from it what it needs: those may be there already.

    Args:
        config_text: of the settings file, when the verb has one.
        excluded: names of nodes that are not used.

    Raises:
        SettingsError: Kubernetes cannot do what the job says; in one line.
    """
    needs = [*claims(job), _service(job), *([config_map(job, config_text)] if config_text is not None else [])]
    return for_kubectl(job, [_job(job, config_text, excluded)], needs)


def _job(job: Job, config_text: str | None, excluded: tuple[str, ...]) -> Object:
    rules = commented_list(
        [
            (_on_codes("FailJob", final_codes(job)), "a new start would end the same way"),
            (_on_codes("Ignore", [Preempted.exit_code]), "saved when asked to stop: started again, and not counted"),
            (
                {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
                "drained, preempted, or its node lost",
            ),
        ]
    )
    template = pod_template(
        job,
        config_text,
        excluded,
        container={"name": _CONTAINER},
        place=_place(job),
        pod={"restartPolicy": "Never", "subdomain": job.name, **dns_search(job)},
    )
    spec: Object = {
        "completions": job.nodes,
        "parallelism": job.nodes,
        "completionMode": "Indexed",
        "backoffLimitPerIndex": job.retries,
        "maxFailedIndexes": 0,
        "activeDeadlineSeconds": deadline_seconds(job),
        "podFailurePolicy": {"rules": rules},
        **success_policy(job),
        "template": template,
    }
    comments = {
        "backoffLimitPerIndex": "job.retries, of each pod",
        "activeDeadlineSeconds": DEADLINE,
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata(job),
        "spec": commented(spec, comments),
    }


def _on_codes(action: str, codes: list[int]) -> Object:
    return {"action": action, "onExitCodes": {"containerName": _CONTAINER, "operator": "In", "values": codes}}


def _place(job: Job) -> list[tuple[Object, str]]:
    first = f"{job.name}-0.{job.name}"
    rank: tuple[Object, str] = (
        {"name": "PET_NODE_RANK", "valueFrom": {"fieldRef": {"fieldPath": _INDEX}}},
        "the index of the pod",
    )
    processes = {"name": "PET_NPROC_PER_NODE", "value": str(job.processes)}
    if job.min_nodes is not None:
        return [
            ({"name": "PET_NNODES", "value": f"{job.min_nodes}:{job.nodes}"}, ""),
            (processes, ""),
            rank,
            ({"name": "PET_RDZV_BACKEND", "value": "c10d"}, ""),
            ({"name": "PET_RDZV_ENDPOINT", "value": f"{first}:{PORT}"}, "without this pod no other goes on"),
            ({"name": "PET_RDZV_ID", "value": job.name}, ""),
        ]
    return [
        ({"name": "PET_NNODES", "value": str(job.nodes)}, ""),
        (processes, ""),
        rank,
        ({"name": "PET_MASTER_ADDR", "value": first}, ""),
        ({"name": "PET_MASTER_PORT", "value": str(PORT)}, ""),
    ]


def _service(job: Job) -> Object:
    """No address of its own: it names the pods, also those that are not ready, which none is before all have met."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": job.name, "namespace": job.kubernetes.namespace, "labels": labels(job)},
        "spec": {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": labels(job)},
    }
