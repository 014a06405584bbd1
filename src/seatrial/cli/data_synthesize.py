"""seatrial data synthesize"""

from pathlib import Path
from typing import Annotated

import typer


def synthesize(
    rows: Annotated[int, typer.Option(help="training rows to make; each suite gets a tenth as many")],
    out: Annotated[Path, typer.Option(help="directory to write records.jsonl, the suites and manifest.json into")],
    seed: Annotated[int, typer.Option(help="the same seed makes the same rows")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="print the manifest as JSON")] = False,
) -> None:
    """Make a function-calling corpus on the spot, with suites of unseen values, phrasings and tools."""
    import json

    from rich.console import Console

    from seatrial.data.synthetic.files import write_corpus

    manifest = write_corpus(out, rows, seed)
    if as_json:
        typer.echo(json.dumps(manifest))
    else:
        Console(stderr=True).print(
            f"{manifest['rows']} rows -> {out / manifest['file']}; "
            f"{manifest['share_with_call']:.1%} of assistant turns hold a call; "
            f"suites of {manifest['suites']['iid']['rows']}: {', '.join(manifest['suites'])}"
        )
