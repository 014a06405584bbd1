"""seatrial data"""

import typer

app = typer.Typer(help="Prepare, check and look at training data.", no_args_is_help=True)


@app.command()
def prepare() -> None:
    """Convert rows of a known format into seatrial records."""


@app.command()
def synthesize() -> None:
    """Make a corpus."""
