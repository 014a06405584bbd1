"""seatrial data validate"""

from pathlib import Path
from typing import Annotated

import typer


def validate(
    records: Annotated[Path, typer.Argument(metavar="DIR", help="what `seatrial data prepare` wrote")],
    template: Annotated[str, typer.Option(help="a shipped chat template, or a model directory")] = "tiny",
    model: Annotated[Path | None, typer.Option(help="tokenizer to check a named --template with, 'stock' too")] = None,
    all_rows: Annotated[bool, typer.Option("--all", help="every row, not a sample of 1,000")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON on stdout")] = False,
) -> None:
    """Prove that what is trained is what is served: tokens, mask, and calls that read back; exit 1 where it is not."""
    import json
    from collections import Counter

    from rich.console import Console

    from seatrial.data.render import named_renderer
    from seatrial.data.validate import validate as run
    from seatrial.errors import EXIT_VERDICT_FAIL

    result = run(records, named_renderer(template, model), all_rows=all_rows)
    failures = result["failures"]
    if as_json:
        typer.echo(json.dumps(result, ensure_ascii=False))
    console = Console(stderr=True)
    console.print(
        f"{result['rows']} rows: {result['mask_ok']} with the right tokens and mask, "
        f"{result['round_trip_ok']} whose calls and text read back"
    )
    for reason, count in Counter(failure["reason"] for failure in failures).most_common():
        console.print(f"{count} x {reason}", markup=False)
    if failures:
        first = failures[0]
        where = f"{records}: row {first['row']} ({first['id']})"
        console.print(f"{where}: {first['reason']}: {first['detail']}", markup=False, soft_wrap=True)
        raise typer.Exit(EXIT_VERDICT_FAIL)
