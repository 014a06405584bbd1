"""A job as an sbatch script, for Slurm and Soperator: with a virtual environment, or in a container (pyxis, enroot)."""

import shlex
from functools import cache
from pathlib import PurePosixPath

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from seatrial.errors import SettingsError
from seatrial.launch.bash import FOLDER, command, exports, heredoc, settings_path
from seatrial.launch.environment import environment
from seatrial.launch.job import Job, Rendered, final_codes, node_command

END_SECONDS = 120
"""How long the other nodes of a training may take to end once the first has: they see it in the run directory."""


def render_slurm(job: Job, config_text: str | None, excluded: tuple[str, ...] = ()) -> Rendered:
    """The script, and ``sbatch`` on it.

    It asks for its nodes, starts ``seatrial.launch.node`` once on each, passes requests to stop on, and puts itself
    back into the queue after a save on request or a failure. Each attempt is a line of ``summary.jsonl``.

    Args:
        excluded: names of nodes that are not to be used.

    Raises:
        SettingsError: neither venv nor image, or paths that this cluster or pyxis could not take.
    """
    if job.slurm.nodewise and job.verb != "accept":
        raise SettingsError(f"job.slurm.nodewise: only job.verb accept can do it, and this is {job.verb}; remove it")
    file = settings_path(config_text) if config_text is not None else None
    words = node_command(job, python=_python(job), config=file)
    text = _template().render(
        job=job,
        directives=[*_directives(job), *_excluding(excluded)],
        exports=exports(environment(job)),
        folder=FOLDER,
        file=file,
        settings=heredoc('"$written"', config_text) if config_text is not None else "",
        srun=_srun(job),
        command=command(words),
        final="|".join(str(code) for code in (0, *final_codes(job))),
    )
    name = f"{job.name}.sbatch"
    return Rendered(files=((name, text),), submit=(("sbatch", "--parsable", name),))


def uses_container(job: Job) -> bool:
    """Where both are given the virtual environment is taken, which starts sooner."""
    return job.venv is None


@cache
def _template() -> Template:
    loader = PackageLoader("seatrial", "launch")
    return Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    ).get_template("slurm.sbatch.jinja")


def _directives(job: Job) -> list[str]:
    nodes = "1" if job.slurm.nodewise else str(job.nodes)
    given = job.slurm
    named = {
        "partition": given.partition,
        "account": given.account,
        "qos": given.qos,
        "reservation": given.reservation,
    }
    return [
        f"job-name={job.name}",
        *([f"array=0-{job.nodes - 1}"] if given.nodewise else []),
        f"nodes={nodes}" if job.min_nodes is None else f"nodes={job.min_nodes}-{job.nodes}",
        "ntasks-per-node=1",
        *([f"gpus-per-node={job.gpus_per_node}"] if job.gpus_per_node else []),
        *_room(job),
        f"time={_duration(job.time_limit_hours)}",
        f"signal=B:USR1@{job.grace_seconds}",
        "requeue",
        f"chdir={_workdir(job)}",
        f"output={job.name}-{'%A_%a' if given.nodewise else '%j'}.out",
        "open-mode=append",
        f"export={','.join(job.secrets) or 'NONE'}",
        *(f"{name}={_one_line(f'job.slurm.{name}', value)}" for name, value in named.items() if value is not None),
    ]


def _room(job: Job) -> list[str]:
    """Without ``cpus_per_node`` a node is asked for as a whole, with all of its cores and memory."""
    memory = [f"mem={job.memory_gib}G"] if job.memory_gib is not None else []
    if job.cpus_per_node is None:
        return ["exclusive", *(memory or ["mem=0"])]
    return [f"cpus-per-task={job.cpus_per_node}", *memory]


def _excluding(nodes: tuple[str, ...]) -> list[str]:
    return [f"exclude={_one_line('excluded nodes', ','.join(nodes))}"] if nodes else []


def _duration(hours: float) -> str:
    """As Slurm reads it: D-HH:MM:SS."""
    minutes, seconds = divmod(max(60, round(hours * 3600)), 60)
    hours_whole, minutes = divmod(minutes, 60)
    days, rest = divmod(hours_whole, 24)
    return f"{days}-{rest:02}:{minutes:02}:{seconds:02}"


def _one_line(name: str, value: str | PurePosixPath) -> str:
    """In a directive, where sbatch takes quotes as a shell does, but a line ends the value.

    Raises:
        SettingsError: it has more than one line.
    """
    if "\n" in str(value) or "\r" in str(value):
        raise SettingsError(
            f"{name} = {str(value)!r}: has more than one line, which no line of a batch script can hold"
        )
    return shlex.quote(str(value))


def _workdir(job: Job) -> str:
    """The log lies in it, and in the path of a log Slurm replaces what follows a percent sign."""
    if not job.workdir.is_absolute():
        raise SettingsError(f"job.workdir {job.workdir}: Slurm needs a whole path, such as /shared/work")
    if set(str(job.workdir)) & set("%\\"):
        raise SettingsError(f"job.workdir {job.workdir}: Slurm takes % and \\ in it for patterns; choose another name")
    return _one_line("job.workdir", job.workdir)


def _python(job: Job) -> str:
    if job.venv is not None:
        return str(job.venv / "bin" / "python")
    if job.image is None:
        raise SettingsError(
            "job.venv and job.image are both missing: name a virtual environment on a file system that all nodes "
            "share (job.venv: /shared/venv), or an image with seatrial in it (job.image)"
        )
    return "python"


def _srun(job: Job) -> list[str]:
    """Options of srun: how the step ends when one node does, and what it runs in."""
    # Not --kill-on-bad-exit: the code of a node that is killed would hide that of the one that has something to say.
    ending = f"--wait={END_SECONDS if job.verb in ('train', 'bench') else 0}"
    cores = [f"--cpus-per-task={job.cpus_per_node}"] if job.cpus_per_node is not None else []
    options = ["--export=ALL", "--mpi=none", "--cpu-bind=none", *cores, "--kill-on-bad-exit=0", ending]
    if not uses_container(job):
        return [*options, *_refuse_moved_mounts(job)]
    assert job.image is not None
    inside = [
        f"--container-image={_container_image(job.image)}",
        f"--container-workdir={job.workdir}",
        "--no-container-mount-home",
    ]
    return [shlex.quote(option) for option in [*options, *inside, f"--container-mounts={_container_mounts(job)}"]]


def _container_image(image: str) -> str:
    """As enroot reads it: a file, or a name with # after the registry, without which it asks Docker Hub.

    A first part with a dot or a port is a registry, by Docker's own rule for names.
    """
    name = image.removeprefix("docker://")
    registry, slash, rest = name.partition("/")
    is_registry = slash and registry and (set(registry) & set(".:") or registry == "localhost")
    return f"{registry}#{rest}" if is_registry and registry != "." and "#" not in name else name


def _refuse_moved_mounts(job: Job) -> list[str]:
    for mount in job.mounts:
        if mount.source is not None and mount.source != str(mount.path):
            raise SettingsError(
                f"job.mounts: {mount.source} at {mount.path}: only a container can see a directory elsewhere than it "
                "is; use its own path, or job.image without job.venv"
            )
    return []


def _container_mounts(job: Job) -> str:
    """As pyxis reads them. The folder of the job must be seen in the container and by the script outside of it."""
    pairs = [(mount.source or str(mount.path), str(mount.path)) for mount in job.mounts]
    for path in (path for pair in pairs for path in pair):
        if set(path) & set(",:\n"):
            raise SettingsError(f"job.mounts: {path!r}: pyxis cannot mount a path with a comma, colon or new line")
    same = [PurePosixPath(inside) for outside, inside in pairs if outside == inside]
    if not any(job.workdir.is_relative_to(path) for path in same):
        raise SettingsError(
            f"job.workdir {job.workdir}: lies under no mount that has the same path outside of the container; "
            "add one to job.mounts, such as {path: /shared}, and put job.workdir below it"
        )
    return ",".join(f"{outside}:{inside}" for outside, inside in pairs)
