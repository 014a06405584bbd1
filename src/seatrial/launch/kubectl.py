"""kubectl: the command lines for a job that was sent, and what its complaints mean."""

from collections.abc import Sequence

from seatrial.launch.job import Job, Rendered
from seatrial.launch.manifest import Object, as_yaml


def kubectl(job: Job, *words: str) -> list[str]:
    """``kubectl`` on the job's cluster and in its namespace."""
    context = ["--context", job.kubernetes.context] if job.kubernetes.context is not None else []
    return ["kubectl", *context, "--namespace", job.kubernetes.namespace, *words]


def for_kubectl(job: Job, objects: Sequence[Object], needs: Sequence[Object]) -> Rendered:
    """Two files, since ``objects`` must be new, while ``needs`` may be there already, and stay when the job ends."""
    file, needed = f"{job.name}.yaml", f"{job.name}-needs.yaml"
    what = f"{job.nodes} x {job.gpus_per_node} GPUs" if job.gpus_per_node else f"{job.nodes} x no GPU"
    create = tuple(kubectl(job, "create", "-f", file))
    if not needs:
        return Rendered(((file, as_yaml(objects, heading=f"{job.name}: seatrial {job.verb} on {what}")),), (create,))
    return Rendered(
        files=(
            (file, as_yaml(objects, heading=f"{job.name}: seatrial {job.verb} on {what}")),
            (needed, as_yaml(needs, heading=f"What {job.name} needs, and what may be there already")),
        ),
        submit=(tuple(kubectl(job, "apply", "-f", needed)), create),
    )
