"""The table of verbs, and the one place where an error becomes a line of text and an exit code."""

import sys

import typer

from seatrial.cli import accept, bench, checkpoint, data, demo, drill, evaluate, export, launch, report, train
from seatrial.errors import SeatrialError
from seatrial.stop import stop_requests

app = typer.Typer(
    name="seatrial",
    help="Accept a GPU cluster, fine-tune an open LLM for function calling on it, and prove that it got better.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo")(demo.demo)
app.add_typer(accept.app, name="accept")
app.add_typer(data.app, name="data")
app.command("train")(train.train)
app.add_typer(checkpoint.app, name="checkpoint")
app.command("drill")(drill.drill)
app.command("eval")(evaluate.evaluate)
app.add_typer(bench.app, name="bench")
app.command("export")(export.export)
app.add_typer(launch.app, name="launch")
app.command("report")(report.report)


def main() -> None:
    """Entry point of the console script and of ``python -m seatrial``."""
    try:
        with stop_requests(at_once=True):  # verbs that can save what they have answer otherwise
            app()
    except SeatrialError as error:
        colour = typer.colors.RED
        for line in str(error).splitlines():
            typer.secho(f"error: {line}", fg=colour, err=True)
        sys.exit(error.exit_code)
