"""kubectl: the command lines for a job that was sent, and what its complaints mean."""

from seatrial.launch.job import Job


def kubectl(job: Job, *words: str) -> list[str]:
    """``kubectl`` on the job's cluster and in its namespace."""
    context = ["--context", job.kubernetes.context] if job.kubernetes.context is not None else []
    return ["kubectl", *context, "--namespace", job.kubernetes.namespace, *words]
