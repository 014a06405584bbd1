"""What a pod mounts: volumes, the claims behind them, and the settings that travel with the job."""

import hashlib
import re
from pathlib import PurePosixPath

from seatrial.errors import SettingsError
from seatrial.launch.job import Job, Mount
from seatrial.launch.manifest import Object, block, commented

CONFIG = PurePosixPath("/etc/seatrial/config.yaml")
"""Where a pod finds the settings."""

CONFIG_BYTES = 900_000
"""A ConfigMap holds 1 MiB, names and all."""

_HASH_CHARACTERS = 8


def labels(job: Job) -> dict[str, str]:
    """Of everything that belongs to this job alone; by these it is found, followed and deleted."""
    return {"app.kubernetes.io/name": "seatrial", "app.kubernetes.io/instance": job.name}


def config_map(job: Job, config_text: str) -> Object:
    """The settings as they were when the job was sent. Other settings have another name, so that nothing changes under
    pods that are started again.

    Raises:
        SettingsError: they are too long.
    """
    size = len(config_text.encode())
    if size > CONFIG_BYTES:
        raise SettingsError(
            f"job.config has {size:,} bytes, and Kubernetes hands {CONFIG_BYTES:,} to a pod at the most: "
            "put what is long into a file on a mount"
        )
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": _config_name(job, config_text),
            "namespace": job.kubernetes.namespace,
            "labels": labels(job),
        },
        "immutable": True,
        "data": {CONFIG.name: block(config_text)},
    }


def claims(job: Job) -> list[Object]:
    """Claims for mounts that name none. They bear no name or label of the job: what lies there outlives it, and the
    next job finds it.

    Raises:
        SettingsError: such a mount has no size.
    """
    made: list[Object] = []
    for at, mount in enumerate(job.mounts):
        if mount.kind == "scratch" or mount.source is not None or _is_for_each_node(job, mount):
            continue
        metadata = {
            "name": claim_name(mount),
            "namespace": job.kubernetes.namespace,
            "labels": {"app.kubernetes.io/name": "seatrial"},
        }
        spec = _claim_spec(job, at)
        made.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    return made


def claim_name(mount: Mount) -> str:
    """Of the claim that is made: seatrial-mnt-data for /mnt/data. A path that a name cannot hold adds its hash."""
    path = str(mount.path)
    words = re.sub(r"[^a-z0-9]+", "-", path.lower()).strip("-")[:40].rstrip("-")
    if "/" + words.replace("-", "/") != path:
        words = f"{words}-{_hash(path)}".lstrip("-")
    return f"seatrial-{words}"


def volumes(job: Job, config_text: str | None) -> list[Object]:
    """Of each pod.

    Raises:
        SettingsError: a mount cannot be had.
    """
    shm = {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": f"{job.shm_gib}Gi"}}
    made: list[Object] = [commented(shm, {"emptyDir": "counts as memory of the pod; the default of 64 MiB ends NCCL"})]
    if config_text is not None:
        made.append({"name": "config", "configMap": {"name": _config_name(job, config_text)}})
    return made + [{"name": f"mount-{at}", **_source(job, at)} for at in range(len(job.mounts))]


def volume_mounts(job: Job, config_text: str | None) -> list[Object]:
    """Of the one container."""
    made: list[Object] = [{"name": "shm", "mountPath": "/dev/shm"}]
    if config_text is not None:
        made.append({"name": "config", "mountPath": str(CONFIG.parent), "readOnly": True})
    return made + [{"name": f"mount-{at}", "mountPath": str(mount.path)} for at, mount in enumerate(job.mounts)]


def _source(job: Job, at: int) -> Object:
    mount = job.mounts[at]
    match mount.kind:
        case "scratch" if mount.source is not None:
            return {"hostPath": {"path": mount.source, "type": "Directory"}}
        case "scratch":
            return {"emptyDir": {"sizeLimit": f"{mount.size_gib}Gi"} if mount.size_gib is not None else {}}
        case "disk" if _is_for_each_node(job, mount):
            return {"ephemeral": {"volumeClaimTemplate": {"spec": _claim_spec(job, at)}}}
        case "disk" if job.nodes > 1:
            raise SettingsError(
                f"job.mounts.{at}.source = {mount.source!r}: a disk is one node's, and this job has {job.nodes}; "
                "leave it out, and every node gets a disk of its own, or set kind: shared"
            )
        case _:
            return {"persistentVolumeClaim": {"claimName": mount.source or claim_name(mount)}}


def _is_for_each_node(job: Job, mount: Mount) -> bool:
    """A disk that is made with a pod and deleted with it."""
    return mount.kind == "disk" and mount.source is None and job.nodes > 1


def _claim_spec(job: Job, at: int) -> Object:
    mount = job.mounts[at]
    if mount.size_gib is None:
        raise SettingsError(
            f"job.mounts.{at}.size_gib is not set, and on Kubernetes a claim is made for {mount.path}: say how large, "
            "or name a claim that is there as source"
        )
    return {
        "accessModes": ["ReadWriteMany" if mount.kind == "shared" else "ReadWriteOnce"],
        **({"storageClassName": mount.storage_class} if mount.storage_class is not None else {}),
        "resources": {"requests": {"storage": f"{mount.size_gib}Gi"}},
    }


def _config_name(job: Job, config_text: str) -> str:
    return f"{job.name}-{_hash(config_text)}"


def _hash(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()[:_HASH_CHARACTERS]
