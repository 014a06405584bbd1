"""A job as a script that starts one container: on this machine, or by hand on each of several.

Docker starts nothing again by its exit code: what can be mended on the spot, seatrial mends itself.
"""

import csv
import io
import shlex
from collections.abc import Sequence

from seatrial.errors import SettingsError
from seatrial.launch.bash import heredoc, settings_path
from seatrial.launch.environment import Variable, environment
from seatrial.launch.job import Job, Rendered, node_command
from seatrial.launch.pod import PORT
from seatrial.launch.volumes import CONFIG

_HOME = (
    Variable("HOME", "/tmp", "whoever starts this has no home in the image"),
    Variable("USER", "seatrial", "nor a name, which compilers of kernels ask for"),
)


def render_docker(job: Job, config_text: str | None, excluded: tuple[str, ...] = ()) -> Rendered:
    """The script. With several nodes it is told which of them it starts, and where the first is.

    Args:
        config_text: of the settings file, when the verb has one.
        excluded: names of nodes that are not to be used; a comment tells whoever starts the script.

    Raises:
        SettingsError: Docker cannot do what the job says; in one line.
    """
    if job.image is None:
        raise SettingsError("job.image is not set, and a container is made from one: name an image with seatrial in it")
    if job.min_nodes is not None:
        raise SettingsError(
            f"job.min_nodes = {job.min_nodes}: nobody here starts a node again; leave it out, or take pytorchjob"
        )
    file = f"{job.name}.sh"
    lines = ["#!/bin/bash", *_usage(job, file, excluded), "set -euo pipefail"]
    if job.nodes > 1:
        lines += [
            f"rank=${{1:?which node this is, from 0 to {job.nodes - 1}}}",
            "first=${2:?the name or address of the first node, as all of them reach it}",
        ]
    if config_text is not None:
        lines += [
            'settings="$(cd "$(dirname "$0")" && pwd)/' + settings_path(config_text) + '"',
            'mkdir -p "$(dirname "$settings")"',
            heredoc('"$settings"', config_text),
        ]
    lines += [
        "options=(",
        *(f"    {line}" for line in _options(job, with_settings=config_text is not None)),
        ")",
        f"docker rm {job.name} >/dev/null 2>&1 || true  # that has ended; one that runs stays, and is named below",
        f'exec docker run {_quoted("--entrypoint", "python")} "${{options[@]}}" {_quoted(job.image)} \\',
        f"    {_quoted(*_arguments(job, with_settings=config_text is not None))}",
    ]
    submit = (("bash", file),) if job.nodes == 1 else ()
    return Rendered(files=((file, "\n".join(lines) + "\n"),), submit=submit)


def _usage(job: Job, file: str, excluded: Sequence[str]) -> list[str]:
    how = f"bash {file}" if job.nodes == 1 else f"bash {file} NODE FIRST   on each node, from 0 to {job.nodes - 1}"
    return [
        f"# {job.name} in Docker: {how}",
        f"# docker logs --follow {job.name} shows what it says, and docker stop {job.name} lets it save and end (75):",
        "# the same script goes on.",
        *([f"# Failed their acceptance, not to be used: {_quoted(', '.join(excluded))}"] if excluded else []),
    ]


def _options(job: Job, *, with_settings: bool) -> list[str]:
    infiniband = job.fabric == "infiniband" and job.nodes > 1 and job.gpus_per_node > 0
    lines = [
        f"--detach --init --name {job.name}",
        '--user "$(id -u):$(id -g)"  # what it writes on mounts is yours',
        f"--stop-timeout {job.grace_seconds}  # from the request to stop to the kill",
        f"--shm-size {job.shm_gib}g  # NCCL and data workers share memory there; the default of 64 MB ends them",
        "--ulimit memlock=-1  # memory that a network card reads is pinned",
        "--ulimit stack=67108864",
    ]
    if job.gpus_per_node:
        lines.append(f"--gpus {job.gpus_per_node}")
    if job.cpus_per_node is not None:
        lines.append(f"--cpus {job.cpus_per_node}")
    if job.memory_gib is not None:
        lines.append(f"--memory {job.memory_gib}g")
    if job.nodes > 1:
        lines.append("--network host  # the fabric's own addresses")
    if infiniband:
        lines.append("--device /dev/infiniband")
    lines += [f"--mount {_bind(str(mount.source or mount.path), str(mount.path))}" for mount in job.mounts]
    if with_settings:
        lines.append(f'--mount "type=bind,source=$settings,target={CONFIG},readonly"')
    lines.append(f"--workdir {_quoted(str(job.workdir))}")
    rank, first = ('"$rank"', '"$first"') if job.nodes > 1 else ("0", "127.0.0.1")
    lines += [
        f"--env PET_NNODES={job.nodes} --env PET_NPROC_PER_NODE={job.processes}",
        f"--env PET_NODE_RANK={rank} --env PET_MASTER_ADDR={first} --env PET_MASTER_PORT={PORT}",
    ]
    lines.append('--env SEATRIAL_NODE_NAME="$(hostname)"  # by which an acceptance names it, and jobs avoid it')
    home = [each for each in _HOME if each.name not in job.environment]
    lines += [f"--env {_quoted(f'{each.name}={each.value}')}  # {each.reason}" for each in (*home, *environment(job))]
    lines += [f"--env {name}  # its value is taken from where the script is started" for name in job.secrets]
    return lines


def _arguments(job: Job, *, with_settings: bool) -> list[str]:
    _python, *arguments = node_command(job, python="python", config=str(CONFIG) if with_settings else None)
    return arguments


def _bind(source: str, target: str) -> str:
    """As --mount wants it: comma-separated, quoted as in CSV. Unlike --volume it makes no folder that is missing."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(["type=bind", f"source={source}", f"target={target}"])
    return _quoted(line.getvalue())


def _quoted(*words: str) -> str:
    return " ".join(shlex.quote(word) for word in words)
