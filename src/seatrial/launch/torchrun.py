"""A job as a script that is started by hand, on machines without a scheduler: a line to paste on each."""

import shlex

from seatrial.launch.bash import exports, heredoc, settings_path
from seatrial.launch.environment import Variable, environment
from seatrial.launch.job import Job, Rendered, node_command

FIRST = "127.0.0.1"
PORT = 29500


def render_torchrun(job: Job, config_text: str | None, excluded: tuple[str, ...] = ()) -> Rendered:
    """The script, and its line for each node, as if all of them were on this machine.

    Args:
        excluded: names of nodes that are not to be used; a comment tells whoever starts the script.
    """
    name = f"{job.name}.sh"
    file = settings_path(config_text) if config_text is not None else None
    last = job.nodes - 1
    lines = [
        "#!/bin/bash",
        *_usage(job, name, excluded),
        "set -euo pipefail",
        f"export PET_NODE_RANK=${{1:?which node this is, from 0 to {last}}}",
        "export PET_MASTER_ADDR=${2:?the name or address of the first node, as all of them reach it}",
        f"export PET_MASTER_PORT=${{3:-{PORT}}}",
        *exports([*_place(job), *environment(job)]),
        *_rendezvous(job),
        "",
        f"cd {shlex.quote(str(job.workdir))}",
    ]
    if config_text is not None:
        lines += [
            "mkdir -p .seatrial",
            heredoc('".seatrial/settings-$$.tmp"', config_text),
            f'mv ".seatrial/settings-$$.tmp" {file}',
        ]
    python = str(job.venv / "bin" / "python") if job.venv is not None else "python"
    lines.append(f"exec {' '.join(shlex.quote(word) for word in node_command(job, python=python, config=file))}")
    start = tuple(("bash", name, str(node), FIRST) for node in range(job.nodes))
    return Rendered(files=((name, "\n".join(lines) + "\n"),), submit=start)


def _usage(job: Job, name: str, excluded: tuple[str, ...]) -> list[str]:
    """Comments, with the lines to paste on the first two nodes, and on the last."""
    nodes = sorted({0, min(1, job.nodes - 1), job.nodes - 1})
    return [
        f"# {job.name}, by hand: on each of its {job.nodes} nodes, one of these lines, within ten minutes.",
        *(f"#     bash {name} {node} FIRST{'' if node else '    # FIRST: its own name or address'}" for node in nodes),
        "# Exit code 75: it saved when it was asked to stop, and the same lines go on.",
        *([f"# Failed their acceptance, not to be used: {shlex.quote(', '.join(excluded))}"] if excluded else []),
    ]


def _place(job: Job) -> list[Variable]:
    nodes = str(job.nodes) if job.min_nodes is None else f"{job.min_nodes}:{job.nodes}"
    return [
        Variable("PET_NNODES", nodes, "nodes, or the least and the most of them"),
        Variable("PET_NPROC_PER_NODE", str(job.processes), "of each node"),
    ]


def _rendezvous(job: Job) -> list[str]:
    if job.min_nodes is None:
        return []
    return [
        "export PET_RDZV_BACKEND=c10d PET_RDZV_ENDPOINT=$PET_MASTER_ADDR:$PET_MASTER_PORT  # nodes may come and go",
        f"export PET_RDZV_ID={job.name}",
    ]
