"""seatrial data"""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Prepare, check and look at training data.", no_args_is_help=True)


@app.command()
def prepare(
    source: Annotated[str, typer.Option(help="format of the rows: glaive or xlam")],
    input_path: Annotated[Path, typer.Option("--in", help="file or folder to read")],
    out: Annotated[Path, typer.Option(help="directory to write records.jsonl, rejections.jsonl, manifest.json into")],
    force: Annotated[bool, typer.Option(help="replace the records that --out holds")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the counts as JSON")] = False,
) -> None:
    """Convert rows of a known format into validated seatrial records."""
    import json

    from rich.console import Console

    from seatrial.data.prepare import prepare as run
    from seatrial.data.sources import CONVERTERS
    from seatrial.errors import UsageError

    if source not in CONVERTERS:
        raise UsageError(f"--source {source}: unknown; choose one of {', '.join(CONVERTERS)}")
    manifest = run(source, input_path, out, force=force)
    if as_json:
        typer.echo(json.dumps(manifest, ensure_ascii=False))
    else:
        Console(stderr=True).print(
            f"{manifest['accepted']} of {manifest['rows']} rows -> {out / 'records.jsonl'}; "
            f"{manifest['share_with_call']:.1%} of assistant turns hold a call; rejected: {manifest['rejected']}"
        )
