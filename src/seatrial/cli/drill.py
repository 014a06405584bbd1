"""seatrial drill"""

from pathlib import Path
from typing import Annotated, Any

import typer

from seatrial.errors import EXIT_INCONCLUSIVE, EXIT_VERDICT_FAIL, UsageError


def drill(
    config: Annotated[
        Path | None,
        typer.Argument(help="a training to be shortened and broken; a tiny one by default"),
    ] = None,
    faults: Annotated[int, typer.Option(min=1, help="how many trainings are broken, each in one way")] = 8,
    seed: Annotated[int, typer.Option(help="draws the faults, their moments and the sizes")] = 0,
    world: Annotated[str, typer.Option(help="numbers of processes, separated by commas")] = "1,2,3,4",
    only: Annotated[str | None, typer.Option(help="families or parts of names of faults, separated by commas")] = None,
    budget: Annotated[str | None, typer.Option(help="such as 90s, 10m or 1h: no training is begun after it")] = None,
    out: Annotated[Path, typer.Option(help="where the trainings live; those that failed stay")] = Path("runs/drill"),
    json_file: Annotated[Path | None, typer.Option("--json", help="write the result here; - is stdout")] = None,
    html_file: Annotated[Path | None, typer.Option("--html", help="write the result as one page")] = None,
) -> None:
    """Break a training in many ways and prove that the same model comes out. Exit code 1 where it does not."""
    worlds, budget_seconds = _worlds(world), _seconds(budget) if budget is not None else None

    import json

    from rich.console import Console

    from seatrial.drill.page import render
    from seatrial.drill.sweep import Drill, run_drill
    from seatrial.records import write_json
    from seatrial.settings import TrainSettings, load_settings

    console = Console(stderr=True, highlight=False)

    def keep(result: dict[str, Any]) -> None:
        """After every training: of a drill that is stopped, this stays."""
        if json_file is not None and str(json_file) != "-":
            write_json(json_file, result)
        if html_file is not None:
            html_file.write_text(render(result))

    result = run_drill(
        Drill(
            out=out,
            settings=load_settings(config, (), TrainSettings) if config is not None else None,
            faults=faults,
            seed=seed,
            worlds=worlds,
            only=tuple(only.split(",")) if only is not None else (),
            budget_seconds=budget_seconds,
        ),
        lambda text: console.print(text, markup=False, soft_wrap=True),
        keep,
    )
    if str(json_file) == "-":
        typer.echo(json.dumps(result, indent=2))
    ettr = f"{result['ettr']:.2f}" if result["ettr"] is not None else "not measured"
    console.print(f"{result['verdict']}: {result['counts']}, effective training time {ettr}", markup=False)
    if result["verdict"] in ("FAIL", "INCONCLUSIVE"):
        raise typer.Exit(EXIT_VERDICT_FAIL if result["verdict"] == "FAIL" else EXIT_INCONCLUSIVE)


def _worlds(text: str) -> tuple[int, ...]:
    worlds = tuple(int(part) if part.strip().isdecimal() else 0 for part in text.split(","))
    if min(worlds) < 1:
        raise UsageError(f"--world {text}: expected numbers of processes, such as 1,2,4")
    return worlds


def _seconds(text: str) -> float:
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    number = text[:-1] if text[-1:] in units else ""
    if not number.replace(".", "", 1).isdecimal():
        raise UsageError(f"--budget {text}: expected a time, such as 90s, 10m or 1h")
    return float(number) * units[text[-1]]
