"""A node of a job as a pod: what Kubernetes' own Job and Kubeflow's two kinds have in common."""

from collections.abc import Sequence

from seatrial.errors import SettingsError
from seatrial.launch.environment import environment
from seatrial.launch.job import Job, node_command
from seatrial.launch.manifest import Object, commented, commented_list, literal
from seatrial.launch.volumes import CONFIG, labels, volume_mounts, volumes

PORT = 29500
"""Where nodes meet. A pod has an address of its own, and with it all ports."""

GROUP = 10001
"""Of the user that seatrial's image runs as, to whom volumes are made writable."""


def metadata(job: Job) -> Object:
    """Of the object that is the job itself. Kueue starts it when there is room for all of its pods."""
    queue = {"kueue.x-k8s.io/queue-name": job.kubernetes.queue} if job.kubernetes.queue is not None else {}
    return {"name": job.name, "namespace": job.kubernetes.namespace, "labels": {**labels(job), **queue}}


DEADLINE = "job.time_limit_hours, restarts included; then all pods are asked to stop, and save"


def deadline_seconds(job: Job) -> int:
    """Kubernetes counts from the first start of a job to its end, all restarts between them included."""
    return max(1, round(job.time_limit_hours * 3600))


def dns_search(job: Job) -> Object:
    """Pods know each other by the name that each has itself: it is looked up among the job's own."""
    return {"dnsConfig": {"searches": [f"{job.name}.{job.kubernetes.namespace}.svc.cluster.local"]}}


def avoiding(nodes: Sequence[str]) -> Object:
    """An affinity to all nodes but these. Such a field takes one name at a time, and all of them must hold."""
    if not nodes:
        return {}
    term = {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": [node]} for node in nodes]}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    comment = {"requiredDuringSchedulingIgnoredDuringExecution": "nodes that failed acceptance"}
    return {"nodeAffinity": commented(required, comment)}


def success_policy(job: Job) -> Object:
    """A field of a Job. A command is every node's own; all else has ended when the first node has, and a pod that is
    lost after that would be started again to wait for nobody."""
    if job.verb == "command":
        return {}
    return {"successPolicy": {"rules": commented_list([({"succeededIndexes": "0"}, "the first node's end is all")])}}


def pod_template(
    job: Job,
    config_text: str | None,
    excluded: Sequence[str],
    *,
    container: Object,
    place: Sequence[tuple[Object, str]],
    pod: Object,
) -> Object:
    """Of every node.

    Args:
        container: its first fields: the name, by which Kubeflow's controllers find it.
        place: the variables that say which node it is, with a comment each.
        pod: further fields of the pod.

    Raises:
        SettingsError: there is no image, or a mount cannot be had.
    """
    if job.image is None:
        raise SettingsError("job.image is not set, and a pod is made from one: name an image with seatrial in it")
    settings = job.kubernetes
    spec: Object = {
        **pod,
        "terminationGracePeriodSeconds": job.grace_seconds,
        "enableServiceLinks": False,
        "automountServiceAccountToken": settings.service_account is not None,
        **({"serviceAccountName": settings.service_account} if settings.service_account is not None else {}),
        **({"imagePullSecrets": [{"name": settings.image_pull_secret}]} if settings.image_pull_secret else {}),
        "securityContext": {"fsGroup": GROUP, "fsGroupChangePolicy": "OnRootMismatch"},
        **_scheduling(job, excluded),
        "containers": [_container(job, job.image, config_text, container, place)],
        "volumes": volumes(job, config_text),
    }
    comments = {
        "terminationGracePeriodSeconds": "from the request to stop, which a training saves at, to the kill",
        "enableServiceLinks": "every Service of the namespace would add variables",
        "securityContext": "volumes are writable for the image's user",
    }
    return {"metadata": _pod_metadata(job), "spec": commented(spec, comments)}


def _pod_metadata(job: Job) -> Object:
    near = job.kubernetes.topology if job.kubernetes.queue is not None else None
    annotations = {"kueue.x-k8s.io/podset-preferred-topology": near} if near is not None else {}
    return {"labels": labels(job), **({"annotations": annotations} if annotations else {})}


def _container(
    job: Job, image: str, config_text: str | None, fields: Object, place: Sequence[tuple[Object, str]]
) -> Object:
    command = node_command(job, python="python", config=str(CONFIG) if config_text is not None else None)
    node = {"name": "SEATRIAL_NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    own = [({"name": each.name, "value": literal(each.value)}, each.reason) for each in environment(job)]
    secret = job.kubernetes.secret
    secrets = [
        ({"name": each, "valueFrom": {"secretKeyRef": {"name": secret, "key": each}}}, "") for each in job.secrets
    ]
    return {
        **fields,
        "image": image,
        "command": [literal(word) for word in command],
        "workingDir": str(job.workdir),
        "env": commented_list([*place, (node, "by which an acceptance names it, and jobs avoid it"), *own, *secrets]),
        "resources": _resources(job),
        "securityContext": _security(job),
        "volumeMounts": volume_mounts(job, config_text),
    }


def _resources(job: Job) -> Object:
    devices = {"nvidia.com/gpu": str(job.gpus_per_node)} if job.gpus_per_node else {}
    if _has_infiniband(job):
        devices |= {name: str(count) for name, count in job.kubernetes.rdma.items()}
    memory = {"memory": f"{job.memory_gib}Gi"} if job.memory_gib is not None else {}
    cpus = {"cpu": str(job.cpus_per_node)} if job.cpus_per_node is not None else {}
    return {"requests": {**cpus, **memory, **devices}, "limits": {**memory, **devices}}


def _has_infiniband(job: Job) -> bool:
    return job.fabric == "infiniband" and job.nodes > 1 and job.gpus_per_node > 0


def _security(job: Job) -> Object:
    """InfiniBand pins memory. A capability that is added reaches only processes of root, and Kubernetes has no ulimit:
    containerd leaves 8 MiB, and NCCL would fall back to TCP."""
    if not _has_infiniband(job):
        return {"allowPrivilegeEscalation": False}
    if not job.kubernetes.rdma:
        all_devices = {"privileged": True, "runAsUser": 0}
        return commented(
            all_devices, {"privileged": "for /dev/infiniband; not needed where job.kubernetes.rdma is set"}
        )
    fields: Object = {"allowPrivilegeEscalation": False, "runAsUser": 0, "capabilities": {"add": ["IPC_LOCK"]}}
    return commented(fields, {"runAsUser": "IPC_LOCK, to pin memory for InfiniBand, has an effect for root alone"})


def _scheduling(job: Job, excluded: Sequence[str]) -> Object:
    affinity = avoiding(excluded)
    selector = {"labelSelector": {"matchLabels": labels(job)}}
    if job.nodes > 1:
        apart = [{**selector, "topologyKey": "kubernetes.io/hostname"}]
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": apart}
    if job.nodes > 1 and job.kubernetes.topology is not None and job.kubernetes.queue is None:
        near = {"weight": 100, "podAffinityTerm": {**selector, "topologyKey": job.kubernetes.topology}}
        affinity["podAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": [near]}
    tolerations = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]
    return {
        **({"affinity": affinity} if affinity else {}),
        **({"tolerations": tolerations} if job.gpus_per_node else {}),
    }
