"""seatrial data fetch"""

from pathlib import Path
from typing import Annotated

import typer


def fetch(
    name: Annotated[str, typer.Argument(help="owner/name of a model or dataset; datasets/owner/name to be explicit")],
    to: Annotated[Path, typer.Option(help="directory to fill, on storage that every node sees")],
    revision: Annotated[str | None, typer.Option(help="commit, tag or branch")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print what was fetched to stdout")] = False,
) -> None:
    """Stage a model or dataset from the hub onto shared storage, pinned to a commit."""
    import json

    from rich.console import Console

    from seatrial.data.fetch import fetch as run

    fetched = run(name, to, revision=revision)
    if as_json:
        typer.echo(json.dumps(fetched))
    else:
        Console(stderr=True).print(f"{fetched['kind']} {name} at {fetched['revision']} is in {to}")
