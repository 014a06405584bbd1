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
    out: Annotated[Path, typer.Option(help="where acceptance.json, .md, .html, .xml and the raw facts go")] = Path(
        "runs/acceptance"
    ),
    json_file: Annotated[
        Path | None, typer.Option("--json", help="also write acceptance.json here; - is stdout")
    ] = None,
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs that were paid for; fewer is a FAIL")] = None,
    own: Annotated[Path | None, typer.Option("--limits", help="YAML of own limits, say those of a contract")] = None,
    mounts: Annotated[str, typer.Option(help="directories on every disk that matters, comma-separated")] = "",
    profile: Annotated[
        str | None, typer.Option(help="clustermax: the checks that evaluation asks for, and warnings that fail")
    ] = None,
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
    from seatrial.accept.profiles import find_profile
    from seatrial.records import CheckResult, Verdict

    place = find_place(os.environ)
    if place is not None and not place.leads:
        return  # the process that leads this node starts the ranks it needs
    demands = find_profile(profile) if profile is not None else None
    named = [name.strip() for name in checks.split(",") if name.strip()]
    ladder = catalogue.choose(named or (demands.checks if demands else ()))
    seconds = catalogue.seconds_of(budget)
    settings = runner.Settings(
        expected_gpus=gpus,
        limits=read_own_limits(own, catalogue.LIMITS) if own else runner.BUILT_IN,
        mounts=tuple(Path(mount.strip()) for mount in mounts.split(",") if mount.strip()),
        past=read_past(history) if history else {},
        profile=demands,
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
            acceptance = runner.conclude(out, results, time.monotonic() - start, profile=demands)
    style = render.STYLES[acceptance.verdict]
    console.print(f"\n[{style}]{acceptance.verdict}[/] in {acceptance.seconds:.0f} s; report in {out}")
    _write(json_file, acceptance.model_dump_json(indent=2) + "\n")
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


@app.command()
def compare(
    first: Annotated[Path, typer.Argument(help="a directory that accept wrote, or its acceptance.json")],
    second: Annotated[Path, typer.Argument(help="a later one, or that of another machine")],
    json_file: Annotated[Path | None, typer.Option("--json", help="write the comparison here; - is stdout")] = None,
) -> None:
    """Compare two acceptances, check by check and part by part. Exit code 1: the second is worse somewhere."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from seatrial.accept.compare import compare
    from seatrial.acceptance import read_acceptance

    comparison = compare(read_acceptance(first), read_acceptance(second))
    table = Table("what", "first", "second", "", show_edge=False, pad_edge=False)
    colours = {"worse": "bold red", "better": "green"}
    for one in comparison.differences:
        if one.change != "same":
            colour = colours.get(one.change, "dim")
            table.add_row(escape(one.what), escape(one.first), escape(one.second), f"[{colour}]{one.change}[/]")
    console = Console(stderr=True, highlight=False)
    same = sum(one.change == "same" for one in comparison.differences)
    if table.row_count:
        console.print(table)
    console.print(f"{same} of {len(comparison.differences)} are the same")
    _write(json_file, comparison.model_dump_json(indent=2) + "\n")
    raise typer.Exit(EXIT_VERDICT_FAIL if comparison.worse else 0)


@app.command()
def simulate(
    nodes: Annotated[int, typer.Option(min=2, help="nodes, with 8 GPUs and 8 network ports each")] = 512,
    faults: Annotated[int, typer.Option(min=0, help="faults, of each kind in turn")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="of the faults and of the noise")] = 0,
    json_file: Annotated[Path | None, typer.Option("--json", help="injected and found as lists; - is stdout")] = None,
) -> None:
    """Find faults in a cluster that exists only here: is everybody named who is at fault, and nobody else?

    Exit code 1: something was missed, or somebody accused who is sound.
    """
    import json
    import time

    from rich.console import Console

    from seatrial.accept.blame.inquest import investigate
    from seatrial.accept.blame.simulate import SimulatedCluster, compared, draw_faults

    if faults > nodes:
        raise UsageError(f"--faults {faults}: one for each of {nodes} nodes at the most")
    start = time.monotonic()
    drawn = draw_faults(nodes, 8, 8, faults, seed)
    inquest = investigate(SimulatedCluster(nodes, 8, 8, drawn, seed), seed)
    report = compared(drawn, inquest)
    console = Console(stderr=True, highlight=False)
    for culprit in inquest.culprits:
        console.print(f"node {culprit.node}, {culprit.part}: {culprit.kind}: {'; '.join(culprit.evidence)}")
    for rail, loss in inquest.slow_rails.items():
        console.print(f"rail {rail}: {loss:.0%} slower than the others between all nodes")
    right = report["found"] == report["injected"]
    spent = f"{inquest.rounds} rounds, {time.monotonic() - start:.1f} s"
    console.print(f"{'all found' if right else 'NOT what was injected'}: {len(drawn)} faults; {spent}")
    _write(json_file, json.dumps(report, indent=2) + "\n")
    raise typer.Exit(0 if right else EXIT_VERDICT_FAIL)


@app.command("self-test")
def self_test(
    json_file: Annotated[Path | None, typer.Option("--json", help="write the result here; - is stdout")] = None,
) -> None:
    """Inject every fault that can be detected, and prove that each is caught and blamed on the right part.

    Exit code 1: one was not.
    """
    import json

    from rich.console import Console

    from seatrial.accept.selftest import faults

    console = Console(stderr=True, highlight=False)
    found = []
    for fault in faults.self_test():
        found.append(fault)
        right = "caught and blamed right" if fault.blamed_right else "caught" if fault.caught else "MISSED"
        console.print(f"{fault.name} ({fault.how}, {fault.seconds:.0f} s): {right}: {fault.said}", markup=False)
    every = all(fault.caught and fault.blamed_right for fault in found)
    _write(json_file, json.dumps({"faults": [fault.model_dump(mode="json") for fault in found]}, indent=2) + "\n")
    raise typer.Exit(0 if every else EXIT_VERDICT_FAIL)


def _write(file: Path | None, text: str) -> None:
    if file is None:
        return
    if str(file) == "-":
        typer.echo(text, nl=False)
        return
    try:
        file.write_text(text)
    except OSError as error:
        raise UsageError(f"--json {file}: cannot be written: {error}") from error


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
