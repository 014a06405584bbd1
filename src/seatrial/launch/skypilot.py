"""A job as a managed job of SkyPilot, which finds machines, and others when those are taken away.

SkyPilot starts a job again by the exit code of ``run``: codes that it is told always, others a number of times. A
training that failed gives the code that it is told, since it gives up by itself when it no longer gets further.
"""

import shlex

from seatrial.errors import Preempted, SettingsError
from seatrial.launch.bash import command, exports, heredoc, settings_path
from seatrial.launch.environment import environment
from seatrial.launch.job import Job, Mount, Rendered, node_command
from seatrial.launch.manifest import Object, as_yaml, block, commented
from seatrial.launch.node import RETRY_CODE
from seatrial.launch.pod import PORT, avoiding
from seatrial.launch.volumes import claim_name

_NODE = f"""\
export PET_NNODES="$SKYPILOT_NUM_NODES"
export PET_NODE_RANK="$SKYPILOT_NODE_RANK"
export PET_MASTER_ADDR="$(head -n 1 <<<"$SKYPILOT_NODE_IPS")"
export PET_MASTER_PORT={PORT}
"""


def render_skypilot(job: Job, config_text: str | None, excluded: tuple[str, ...] = ()) -> Rendered:
    """The task, and a file for each volume that is made.

    Args:
        config_text: of the settings file, when the verb has one.
        excluded: names of nodes that are not used.

    Raises:
        SettingsError: SkyPilot cannot do what the job says; in one line.
    """
    if job.image is None and job.venv is None:
        raise SettingsError("job.image is not set, and job.venv neither: name an image with seatrial in it")
    if job.min_nodes is not None:
        raise SettingsError(
            f"job.min_nodes = {job.min_nodes}: SkyPilot ends all nodes with one; leave it out, or take pytorchjob"
        )
    if excluded and not _on_kubernetes(job):
        raise SettingsError(
            f"job.acceptance excludes {', '.join(excluded)}, and on {job.skypilot.infra} SkyPilot takes any "
            "machines there are: leave it out"
        )
    file = f"{job.name}.yaml"
    what = f"{job.nodes} x {job.gpus_per_node} GPUs" if job.gpus_per_node else f"{job.nodes} x no GPU"
    task = as_yaml([_task(job, config_text, excluded)], heading=f"{job.name}: seatrial {job.verb} on {what}")
    volumes = [
        (f"{job.name}-{claim_name(mount)}.yaml", _volume(job, at))
        for at, mount in enumerate(job.mounts)
        if _is_made(mount)
    ]
    given = [word for name in job.secrets for word in ("--secret", name)]
    return Rendered(
        files=(
            (file, task),
            *((name, as_yaml([volume], heading="A volume that jobs share")) for name, volume in volumes),
        ),
        submit=(
            *(("sky", "volumes", "apply", "--yes", name) for name, _ in volumes),
            ("sky", "jobs", "launch", "--yes", "--detach-run", "--name", job.name, *given, file),
        ),
    )


def _task(job: Job, config_text: str | None, excluded: tuple[str, ...]) -> Object:
    kubernetes = _kubernetes(job, excluded) if _on_kubernetes(job) else {}
    return {
        "name": job.name,
        "num_nodes": job.nodes,
        "resources": _resources(job),
        **({"secrets": dict.fromkeys(job.secrets)} if job.secrets else {}),
        **_mounts(job),
        **({"config": {"kubernetes": kubernetes}} if kubernetes else {}),
        "run": block(_run(job, config_text)),
    }


def _resources(job: Job) -> Object:
    wants_fabric = job.fabric == "infiniband" and job.nodes > 1 and job.gpus_per_node > 0
    # A command's codes are its own: nothing is known of them, so that they are counted.
    restarts = job.retries if job.verb == "command" else 0
    recovery = {
        "strategy": "FAILOVER",
        "max_restarts_on_errors": restarts,
        "recover_on_exit_codes": [Preempted.exit_code],
    }
    comments = {
        "strategy": "first where it was: there its data is",
        "max_restarts_on_errors": "of all other codes, which are final, but for those of a command",
    }
    gpus = {"accelerators": f"{job.skypilot.accelerator}:{job.gpus_per_node}"} if job.gpus_per_node else {}
    return {
        "infra": job.skypilot.infra,
        **gpus,
        **({"cpus": f"{job.cpus_per_node}+"} if job.cpus_per_node is not None else {}),
        **({"memory": f"{job.memory_gib}+"} if job.memory_gib is not None else {}),
        **({"image_id": f"docker:{job.image}"} if job.image is not None else {}),
        **({"network_tier": "best"} if wants_fabric else {}),
        "job_recovery": commented(recovery, comments),
    }


def _kubernetes(job: Job, excluded: tuple[str, ...]) -> Object:
    settings = job.kubernetes
    node = {"name": "SEATRIAL_NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    # Without a name of its own, what is said of a container is merged into SkyPilot's.
    spec: Object = {"terminationGracePeriodSeconds": job.grace_seconds, "containers": [{"env": [node]}]}
    if settings.image_pull_secret is not None:
        spec["imagePullSecrets"] = [{"name": settings.image_pull_secret}]
    if excluded:
        spec["affinity"] = avoiding(excluded)
    return {
        **({"kueue": {"local_queue_name": settings.queue}} if settings.queue is not None else {}),
        **({"remote_identity": settings.service_account} if settings.service_account is not None else {}),
        "pod_config": {"spec": spec},
    }


def _run(job: Job, config_text: str | None) -> str:
    lines = ["set -euo pipefail", _NODE.rstrip(), f"export PET_NPROC_PER_NODE={job.processes}"]
    lines += [f"export {RETRY_CODE}={Preempted.exit_code}  # the one code that is always started again"]
    lines += exports(environment(job))
    lines += [f"mkdir -p {shlex.quote(str(mount.path))}" for mount in job.mounts if mount.kind == "scratch"]
    lines += [f"mkdir -p {shlex.quote(str(job.workdir))}", f"cd {shlex.quote(str(job.workdir))}"]
    file = settings_path(config_text) if config_text is not None else None
    if config_text is not None:
        temporary = '".seatrial/settings-$SKYPILOT_NODE_RANK.tmp"'
        lines += ["mkdir -p .seatrial", heredoc(temporary, config_text), f"mv {temporary} {file}"]
    python = str(job.venv / "bin" / "python") if job.image is None and job.venv is not None else "python"
    lines += [f"exec {command(node_command(job, python=python, config=file))}"]
    return "\n".join(lines) + "\n"


def _mounts(job: Job) -> Object:
    volumes: Object = {}
    buckets: Object = {}
    for at, mount in enumerate(job.mounts):
        path = str(mount.path)
        if mount.kind == "scratch":
            _refuse_source(at, mount)
        elif mount.source is not None and "://" in mount.source:
            buckets[path] = {"source": mount.source, "mode": "MOUNT_CACHED"}
        elif not _on_kubernetes(job):
            raise SettingsError(
                f"job.mounts.{at}.source = {mount.source!r}: on {job.skypilot.infra} SkyPilot mounts buckets; "
                "name one, such as s3://bucket"
            )
        elif mount.kind == "disk" and job.nodes > 1:
            raise SettingsError(
                f"job.mounts.{at}.kind = 'disk': it is one node's, and this job has {job.nodes}; take scratch"
            )
        else:
            volumes[path] = mount.source or claim_name(mount)
    return {**({"volumes": volumes} if volumes else {}), **({"file_mounts": buckets} if buckets else {})}


def _refuse_source(at: int, mount: Mount) -> None:
    if mount.source is not None:
        raise SettingsError(
            f"job.mounts.{at}.source = {mount.source!r}: with SkyPilot scratch is a directory of the pod or machine; "
            "leave it out"
        )


def _is_made(mount: Mount) -> bool:
    return mount.kind != "scratch" and mount.source is None


def _volume(job: Job, at: int) -> Object:
    mount = job.mounts[at]
    if mount.size_gib is None:
        raise SettingsError(
            f"job.mounts.{at}.size_gib is not set, and a volume is made for {mount.path}: say how large, or name one "
            "that is there as source"
        )
    storage_class = {"storage_class_name": mount.storage_class} if mount.storage_class is not None else {}
    mode = "ReadWriteMany" if mount.kind == "shared" else "ReadWriteOnce"
    return {
        "name": claim_name(mount),
        "type": "k8s-pvc",
        "infra": job.skypilot.infra,
        "size": f"{mount.size_gib}Gi",
        "config": {**storage_class, "access_mode": mode},
    }


def _on_kubernetes(job: Job) -> bool:
    return job.skypilot.infra.partition("/")[0].lower() in ("k8s", "kubernetes")
