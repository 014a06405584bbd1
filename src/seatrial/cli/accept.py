"""seatrial accept"""

from pathlib import Path
from typing import Annotated

import typer

from seatrial.errors import EXIT_INCONCLUSIVE, EXIT_VERDICT_FAIL, UsageError

app = typer.Typer(help="Acceptance-test this machine: is every part what was paid for, and if not, which one?")
limits_app = typer.Typer(help="The limits that checks are judged by.", no_args_is_help=True)
app.add_typer(limits_app, name="limits")


@app.callback(invoke_without_command=True)
def accept(
    context: typer.Context,
    budget: Annotated[str, typer.Option(help="time to spend: 90s, 3m, 20m, 2h")] = "3m",
    checks: Annotated[str, typer.Option(help="groups or checks, comma-separated; all when not given")] = "",
    out: Annotated[Path, typer.Option(help="where acceptance.json, .md, .xml and the raw facts go")] = Path(
        "runs/acceptance"
    ),
    json_file: Annotated[
        Path | None, typer.Option("--json", help="also write acceptance.json here; - is stdout")
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs that were paid for; fewer is a FAIL")] = None,
    own: Annotated[Path | None, typer.Option("--limits", help="YAML of own limits, say those of a contract")] = None,
    mounts: Annotated[str, typer.Option(help="directories on every disk that matters, comma-separated")] = "",
    history: Annotated[Path | None, typer.Option(help="directory of earlier acceptances to compare parts with")] = None,
) -> None:
    """Acceptance-test this machine, or, under srun or torchrun, all of a job's: is every part what was paid for?

    Exit code 0: PASS or WARN; 1: FAIL; 3: INCONCLUSIVE, something could not be measured.
    """
    if context.invoked_subcommand is not None:
        return
    import os
    import time

    from rich.console import Console
    from rich.live import Live

    from seatrial.accept import catalogue, render, runner
    from seatrial.accept.cluster.place import find_place
    from seatrial.accept.history import read_past
    from seatrial.accept.limits import read_own_limits
    from seatrial.records import CheckResult, Verdict

    place = find_place(os.environ)
    if place is not None and not place.leads:
        return  # the process that leads this node starts the ranks it needs
    ladder = catalogue.choose([name.strip() for name in checks.split(",") if name.strip()])
    seconds = catalogue.seconds_of(budget)
    settings = runner.Settings(
        expected_gpus=gpus,
        limits=read_own_limits(own, catalogue.LIMITS) if own else runner.BUILT_IN,
        mounts=tuple(Path(mount.strip()) for mount in mounts.split(",") if mount.strip()),
        past=read_past(history) if history else {},
    )
    console = Console(stderr=True)
    results: list[CheckResult] = []
    start = time.monotonic()
    with Live(render.table(ladder, results), console=console, auto_refresh=False) as live:

        def show(result: CheckResult) -> None:
            results.append(result)
            live.update(render.table(ladder, results), refresh=True)

        if place is not None and place.nodes > 1:
            from seatrial.accept.cluster.run import Task, run_node

            acceptance = run_node(place, Task(out, ladder, seconds, settings), show)
        else:
            for result in runner.run_ladder(out, ladder, seconds, settings):
                show(result)
            acceptance = runner.conclude(out, results, time.monotonic() - start)
    style = render.STYLES[acceptance.verdict]
    console.print(f"\n[{style}]{acceptance.verdict}[/] in {acceptance.seconds:.0f} s; report in {out}")
    if json_file is not None:
        text = acceptance.model_dump_json(indent=2) + "\n"
        if str(json_file) == "-":
            typer.echo(text, nl=False)
        else:
            try:
                json_file.write_text(text)
            except OSError as error:
                raise UsageError(f"--json {json_file}: cannot be written: {error}") from error
    codes = {Verdict.FAIL: EXIT_VERDICT_FAIL, Verdict.INCONCLUSIVE: EXIT_INCONCLUSIVE}
    raise typer.Exit(codes.get(acceptance.verdict, 0))


@app.command()
def explain(
    check: Annotated[str, typer.Argument(help="a check, such as host.gemm")],
    gpu: Annotated[str | None, typer.Option(help="for collectives: a kind such as 'H200 SXM'")] = None,
    ranks: Annotated[int, typer.Option(min=2, help="with --gpu: GPUs in all")] = 8,
    nodes: Annotated[int, typer.Option(min=1, help="with --gpu: nodes that they are spread over")] = 1,
    nic_gb_per_s: Annotated[float, typer.Option(min=0, help="with --gpu: line rate of a GPU's network port")] = 50.0,
    own: Annotated[Path | None, typer.Option("--limits", help="YAML of own limits, shown where they apply")] = None,
) -> None:
    """Print a check's question, the arithmetic and sources of its limits, and its remedy."""
    from seatrial.accept import busbw, catalogue, gpu_kinds, limits, render

    found = catalogue.find(check)
    if gpu is None:
        given = limits.read_own_limits(own, catalogue.LIMITS) if own else limits.Limits()
        typer.echo(render.explanation(found, given))
        return
    if found.group != "collectives":
        raise UsageError(f"--gpu {gpu}: only for collectives; {check} prints the limits of every kind")
    if ranks % nodes:
        raise UsageError(f"--ranks {ranks} --nodes {nodes}: every node must have as many GPUs")
    kind = gpu_kinds.kind_named(gpu)
    layout = busbw.Layout(
        kind=kind, ranks=ranks, nodes=nodes, nic_gb_per_s=nic_gb_per_s if nodes > 1 else 0.0, linked=not kind.bridged
    )
    typer.echo(busbw.explained(layout))


@limits_app.command()
def lint(
    own: Annotated[Path | None, typer.Argument(metavar="FILE", help="YAML of own limits, checked too")] = None,
) -> None:
    """Refuse limits without a source, limits that physics forbids, and limits that nothing can fail."""
    from seatrial.accept import catalogue, limits

    given = limits.read_own_limits(own, catalogue.LIMITS) if own else limits.Limits()
    every = {**catalogue.LIMITS, **given.own}.values()
    problems = limits.lint(every)
    for problem in problems:
        typer.secho(f"error: {problem}", fg=typer.colors.RED, err=True)
    if problems:
        raise typer.Exit(EXIT_VERDICT_FAIL)
    typer.echo(f"{len(every)} limits: each has a source, can fail, and asks for less than physics allows")
