"""seatrial launch"""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from seatrial.errors import UsageError

app = typer.Typer(help="Run one job file anywhere: render it, send it, follow it, stop it.", no_args_is_help=True)

_HELP = {
    "slurm": "Slurm and Soperator: an sbatch script, in a virtual environment or a container.",
    "skypilot": "SkyPilot: a managed job that recovers by itself.",
    "kubernetes": "Plain Kubernetes: an Indexed Job, its Service and claims.",
    "pytorchjob": "Kubeflow's training operator: a PyTorchJob, also elastic.",
    "trainjob": "Kubeflow Trainer 2: a TrainJob.",
    "torchrun": "By hand: a script with a line for each node. --submit runs all nodes here.",
    "docker": "Docker on this machine.",
}

JobArgument = Annotated[Path, typer.Argument(metavar="JOB.yaml", help="the job, in YAML")]
OverridesArgument = Annotated[list[str] | None, typer.Argument(help="key=value, such as job.nodes=64")]
NameArgument = Annotated[str | None, typer.Argument(help="name or number of a job; the newest when not given")]
StateOption = Annotated[
    Path | None, typer.Option("--state", help="where what was launched is noted down, instead of the home directory")
]


def _target(target: str) -> Callable[..., None]:
    def launch(
        job: JobArgument,
        overrides: OverridesArgument = None,
        dry_run: Annotated[bool, typer.Option("--dry-run", help="print what would be sent; the default")] = False,
        check: Annotated[bool, typer.Option("--check", help="look for all that would go wrong; send nothing")] = False,
        submit: Annotated[bool, typer.Option("--submit", help="look, then send it")] = False,
        stage: Annotated[
            bool,
            typer.Option("--stage", help="job.stage instead: fetch model and rows on CPUs, before GPUs wait for it"),
        ] = False,
        state: StateOption = None,
    ) -> None:
        if dry_run + check + submit > 1:
            raise UsageError("--dry-run, --check and --submit: give one of them")
        _launch(target, job, overrides or [], check=check, submit=submit, stage=stage, state=state)

    return launch


for name, text in _HELP.items():
    app.command(name, help=text)(_target(name))


def _launch(
    target: str, file: Path, overrides: list[str], *, check: bool, submit: bool, stage: bool, state: Path | None
) -> None:
    from rich.console import Console

    from seatrial.launch.ledger import state_folder
    from seatrial.launch.plan import read_plan, render, staging_plans

    def say(text: str) -> None:
        Console(stderr=True, highlight=False).print(text, markup=False, soft_wrap=True)

    whole = read_plan(file, overrides)
    plans = staging_plans(whole, target) if stage else (whole,)
    every = [(plan, render(target, plan)) for plan in plans]
    if not check and not submit:
        for _, rendered in every:
            for name, text in rendered.files:
                say(f"# {name}")
                typer.echo(text, nl=False)
            for argv in rendered.submit:
                say(f"# then: {' '.join(argv)}")
        return
    from seatrial.launch.preflight.finding import as_text, refuse
    from seatrial.launch.preflight.run import preflight
    from seatrial.launch.submit import submit as send

    for plan, rendered in every:
        findings = preflight(plan.job, target, folder=plan.folder, rendered=rendered)
        say(as_text(findings))
        refuse(findings)
    code = 0
    for plan, rendered in every if submit else ():
        code = code or send(target, plan, rendered, state or state_folder(), say)
    raise typer.Exit(code)


@app.command("list")
def list_jobs(
    state: StateOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the records to stdout")] = False,
) -> None:
    """What was launched from here."""
    import json
    import time

    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from seatrial.launch.ledger import launched_jobs, state_folder

    jobs = launched_jobs(state or state_folder())
    if as_json:
        typer.echo(json.dumps([job.model_dump(mode="json") for job in jobs], indent=2))
        return
    table = Table("name", "target", "number", "verb", "nodes", "launched", show_edge=False, pad_edge=False)
    for job in jobs:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(job.time))
        table.add_row(escape(job.name), job.target, escape(job.number), job.job.verb, str(job.job.nodes), when)
    Console(stderr=True, highlight=False).print(table if jobs else "nothing was launched from here")


@app.command()
def status(name: NameArgument = None, state: StateOption = None) -> None:
    """What the target says about a job."""
    from seatrial.launch import submit
    from seatrial.launch.ledger import find, state_folder

    typer.echo(submit.status(find(state or state_folder(), name)))


@app.command()
def logs(
    name: NameArgument = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="go on as more comes")] = False,
    state: StateOption = None,
) -> None:
    """What a job says."""
    from seatrial.launch import control, submit
    from seatrial.launch.ledger import find, state_folder

    raise typer.Exit(submit.follow(control.logs(find(state or state_folder(), name), follow=follow)))


@app.command("exec", context_settings={"ignore_unknown_options": True})
def execute(
    name: Annotated[str, typer.Argument(help="name or number of a job")],
    words: Annotated[list[str], typer.Argument(metavar="COMMAND...", help="what to run, such as nvidia-smi")],
    state: StateOption = None,
) -> None:
    """Run a command on the first node of a job, beside it."""
    from seatrial.launch import submit
    from seatrial.launch.ledger import find, state_folder

    raise typer.Exit(submit.execute(find(state or state_folder(), name), words))


@app.command()
def stop(name: NameArgument = None, state: StateOption = None) -> None:
    """Ask a job to save and end; launched again, it goes on."""
    from rich.console import Console

    from seatrial.launch import submit
    from seatrial.launch.ledger import find, state_folder

    job = find(state or state_folder(), name)
    submit.stop(job)
    Console(stderr=True, highlight=False).print(f"asked {job.name} to save and end", markup=False)


@app.command()
def fetch(
    name: NameArgument = None,
    to: Annotated[Path | None, typer.Option(help="directory to fill; runs/NAME by default")] = None,
    state: StateOption = None,
) -> None:
    """Copy what a job made here: adapters, models, evaluations and reports, but no checkpoints."""
    from rich.console import Console

    from seatrial.launch import submit
    from seatrial.launch.ledger import find, state_folder

    job = find(state or state_folder(), name)
    where = to or Path("runs") / job.name
    submit.fetch(job, where)
    Console(stderr=True, highlight=False).print(f"what {job.name} made is in {where}", markup=False, soft_wrap=True)
