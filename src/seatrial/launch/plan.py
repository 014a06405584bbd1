"""From a job file to what is sent: everything is read and checked here, before anything is rendered."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from seatrial.acceptance import excluded_nodes, read_acceptance
from seatrial.errors import UsageError
from seatrial.launch.job import Job, JobFile, Rendered
from seatrial.launch.staging import staging_jobs
from seatrial.settings import TrainSettings, load_settings

TARGETS = ("slurm", "skypilot", "kubernetes", "pytorchjob", "trainjob", "torchrun", "docker")

Render = Callable[[Job, str | None, tuple[str, ...]], Rendered]


@dataclass(frozen=True)
class Plan:
    """A job, with all that its file refers to.

    Attributes:
        folder: of the job file.
        config_text: of its settings, which travels with it.
        excluded: nodes that failed their acceptance.
        results: where the job leaves what is worth fetching, as its nodes see it; None where only it knows.
    """

    job: Job
    folder: Path
    config_text: str | None
    excluded: tuple[str, ...]
    results: PurePosixPath | None


def read_plan(file: Path, overrides: Sequence[str] = ()) -> Plan:
    """
    Raises:
        UsageError: the job, its settings or its acceptance are wrong or cannot be read.
    """
    job = load_settings(file, overrides, JobFile).job
    folder = file.parent
    config_text, results = None, None
    if job.config is not None:
        config = folder / job.config
        settings = load_settings(config, _overrides_of(job), TrainSettings)
        config_text = config.read_text()
        results = PurePosixPath(job.run_dir or settings.run.dir) if job.verb == "train" else None
    if job.verb == "accept":
        results = PurePosixPath(_value_of("--out", job.arguments) or "runs/acceptance")
    return Plan(
        job=job,
        folder=folder,
        config_text=config_text,
        excluded=excluded_nodes(read_acceptance(folder / job.acceptance)) if job.acceptance is not None else (),
        results=job.workdir / results if results is not None else None,
    )


def staging_plans(plan: Plan, target: str) -> tuple[Plan, ...]:
    """A plan for each job that ``job.stage`` makes.

    Raises:
        SettingsError: nothing is to be staged, or to where the job would not find it.
    """
    jobs = staging_jobs(plan.job, target)
    return tuple(replace(plan, job=job, config_text=None, excluded=(), results=None) for job in jobs)


def render(target: str, plan: Plan) -> Rendered:
    """
    Raises:
        SettingsError: the target cannot do what the job says.
    """
    return _renderer(target)(plan.job, plan.config_text, plan.excluded)


def _renderer(target: str) -> Render:
    """Each in a module of its own, of which only one is imported."""
    match target:
        case "slurm":
            from seatrial.launch.slurm import render_slurm

            return render_slurm
        case "torchrun":
            from seatrial.launch.torchrun import render_torchrun

            return render_torchrun
        case "kubernetes":
            from seatrial.launch.kubernetes import render_kubernetes

            return render_kubernetes
        case "pytorchjob":
            from seatrial.launch.pytorchjob import render_pytorchjob

            return render_pytorchjob
        case "trainjob":
            from seatrial.launch.trainjob import render_trainjob

            return render_trainjob
        case "skypilot":
            from seatrial.launch.skypilot import render_skypilot

            return render_skypilot
        case "docker":
            from seatrial.launch.docker import render_docker

            return render_docker
        case _:
            raise UsageError(f"{target}: no target; there are {', '.join(TARGETS)}")


def _overrides_of(job: Job) -> list[str]:
    """Those among a training's arguments; a drill takes none."""
    return [word for word in job.arguments if "=" in word and not word.startswith("-")] if job.verb == "train" else []


def _value_of(option: str, arguments: Sequence[str]) -> str | None:
    for at, word in enumerate(arguments):
        if word == option and at + 1 < len(arguments):
            return arguments[at + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None
