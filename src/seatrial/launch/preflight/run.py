"""Everything that can be found wrong with a job from here, on any target, asked in one go."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from seatrial.launch.job import Job, Rendered
from seatrial.launch.preflight import container, kubernetes, skypilot, slurm
from seatrial.launch.preflight.finding import Finding, failed, passed
from seatrial.launch.preflight.training import check_training
from seatrial.records import Verdict
from seatrial.shell import Output, run

KUBERNETES = ("kubernetes", "pytorchjob", "trainjob")
ANSWER_SECONDS = 60.0
"""An answer that takes longer is none: a scheduler that is alive answers in a second."""


def preflight(job: Job, target: str, *, folder: Path, rendered: Rendered) -> tuple[Finding, ...]:
    """Look at a job before a GPU is held for it. Reads files and asks the target's own program; changes nothing.

    Args:
        target: slurm, kubernetes, pytorchjob, trainjob, skypilot, docker or torchrun.
        folder: of the job file, from which ``job.config`` counts.
        rendered: what would be submitted; Slurm and Kubernetes are asked for their opinion of it.

    Returns:
        What was looked at, in an order to read; :func:`seatrial.launch.preflight.finding.refuse` raises for what FAILs.
    """
    return (
        *(check_training(job, target, folder / job.config) if job.config is not None else ()),
        *_check_secrets(job, target, os.environ),
        *_check_target(job, target, rendered),
    )


def _check_secrets(job: Job, target: str, environment: Mapping[str, str]) -> Iterator[Finding]:
    """On Kubernetes they are in a Secret. Elsewhere they come from here; only whether they are there is looked at."""
    for name in job.secrets if target not in KUBERNETES else ():
        if environment.get(name):
            yield passed(f"secret {name}", "is set")
        else:
            remedy = f"export {name}=..., or write it into .env and `set -a; . ./.env; set +a`"
            yield failed(f"secret {name}", "is not set in this environment", remedy)


def _check_target(job: Job, target: str, rendered: Rendered) -> Iterator[Finding]:
    match target:
        case "slurm":
            yield from _check_slurm(job, rendered)
        case "kubernetes" | "pytorchjob" | "trainjob":
            yield from _check_kubernetes(job, target, rendered)
        case "skypilot":
            yield from _check_skypilot(job)
        case "docker":
            server = container.judge_server(_ask(container.SERVER))
            yield server
            if server.verdict is Verdict.PASS and job.image is not None:
                local = _ask(container.local_image(job.image))
                yield container.judge_image(job.image, local, _ask(container.remote_image(job.image)))
        case _:
            yield from _check_venv(job)


def _check_slurm(job: Job, rendered: Rendered) -> Iterator[Finding]:
    sinfo = _ask(slurm.SINFO)
    yield from slurm.judge_partition(job, sinfo)
    if sinfo.ok:
        yield slurm.judge_script(_ask(slurm.TEST_ONLY, stdin=rendered.files[0][1]))
    yield from _check_venv(job)
    if job.venv is None and job.image is not None:
        yield _check_pyxis_image(job.image)


def _check_pyxis_image(image: str) -> Finding:
    """A file, or a name that enroot imports, in which # stands between registry and name."""
    if image.startswith(("/", "./")):
        return container.judge_image_file(image, Path(image).is_file())
    name = image.removeprefix("docker://").replace("#", "/", 1)
    return container.judge_image(image, None, _ask(container.remote_image(name)))


def _check_kubernetes(job: Job, target: str, rendered: Rendered) -> Iterator[Finding]:
    asked = iter(kubernetes.questions(job, target).items())
    _, first = next(asked)
    server = kubernetes.judge_server(_ask(first))
    yield server
    if server.verdict is Verdict.PASS:
        answers = {name: _ask(argv) for name, argv in asked}
        yield from kubernetes.judge(job, answers)
        if target != "trainjob":  # Trainer refuses one whose runtime is not kept first, and a dry run keeps nothing
            yield kubernetes.judge_dry_run(_ask(kubernetes.dry_run(job), stdin=rendered.files[0][1]))
    if job.image is not None:
        yield container.judge_image(job.image, None, _ask(container.remote_image(job.image)))


def _check_skypilot(job: Job) -> Iterator[Finding]:
    patience = skypilot.ANSWER_SECONDS
    version = skypilot.judge_version(_ask(skypilot.VERSION, seconds=patience))
    yield version
    if version.verdict is Verdict.PASS:
        yield skypilot.judge_check(job, _ask(skypilot.check(job), seconds=patience))
        if any(mount.source is not None for mount in job.mounts):
            yield from skypilot.judge_volumes(job, _ask(skypilot.VOLUMES, seconds=patience))


def _check_venv(job: Job) -> Iterator[Finding]:
    """Whether the nodes' Python is there, where it is seen from here."""
    if job.venv is None or not Path(job.venv).parent.is_dir():
        return
    python = Path(job.venv, "bin", "python")
    if _ask((str(python), "-c", "import seatrial")).ok:
        yield passed(f"venv {job.venv}", "has seatrial")
    else:
        remedy = f"python3 -m venv {job.venv} && {python} -m pip install seatrial"
        yield failed(f"venv {job.venv}", "cannot import seatrial", remedy)


def _ask(argv: tuple[str, ...], *, stdin: str | None = None, seconds: float = ANSWER_SECONDS) -> Output:
    return run(argv, timeout_seconds=seconds, stdin=stdin)
