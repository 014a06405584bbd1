"""seatrial data inspect"""

from pathlib import Path
from typing import Annotated

import typer


def inspect(
    records: Annotated[Path, typer.Argument(metavar="DIR", help="what `seatrial data prepare` wrote")],
    row: Annotated[int | None, typer.Option(help="show the tokens of this row, from 1; trained ones in green")] = None,
    plot: Annotated[Path | None, typer.Option(help="draw histograms into this file (.png, .svg, .pdf)")] = None,
    length: Annotated[int, typer.Option(min=1, help="tokens in a pack")] = 4096,
    template: Annotated[str, typer.Option(help="a shipped chat template, or a model directory")] = "tiny",
    model: Annotated[Path | None, typer.Option(help="tokenizer to use a named --template with, 'stock' too")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the statistics as JSON on stdout")] = False,
) -> None:
    """Show lengths, calls, tools, the share trained on and the packing; or one row, token by token."""
    from rich.console import Console

    from seatrial.data import inspect as looking
    from seatrial.data.render import named_renderer

    console = Console(stderr=True)
    renderer = named_renderer(template, model)
    if row is not None:
        console.print(looking.row_text(records, renderer, row), soft_wrap=True)
        return
    statistics = looking.statistics(records, renderer, pack_length=length)
    console.print(looking.table(statistics))
    if plot is not None:
        looking.plot(statistics, plot)
        console.print(f"histograms: {plot}", markup=False)
    if as_json:
        typer.echo(statistics.model_dump_json(exclude={"lengths"}))
