"""seatrial data pack"""

from pathlib import Path
from typing import Annotated

import typer


def pack(
    records: Annotated[Path, typer.Argument(metavar="DIR", help="what `seatrial data prepare` wrote")],
    length: Annotated[int, typer.Option(min=1, help="tokens in a pack")] = 4096,
    template: Annotated[str, typer.Option(help="a shipped chat template, or a model directory")] = "tiny",
    model: Annotated[Path | None, typer.Option(help="tokenizer to use a named --template with, 'stock' too")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print the result as JSON on stdout")] = False,
) -> None:
    """Plan one epoch of packs and say how full they are."""
    import json
    import time

    from rich.console import Console

    from seatrial.data.dataset import load_rows
    from seatrial.data.pack import plan_epoch
    from seatrial.data.render import TrainOn, named_renderer

    rows = load_rows(records, named_renderer(template, model), train_on=TrainOn.ALL, length=length, over_long="drop")
    start = time.perf_counter()
    plan = plan_epoch(rows.lengths_N, length, seed=0, epoch=0)
    seconds = time.perf_counter() - start
    result = {
        "rows": len(rows.rows),
        "left_out": rows.left_out,
        "tokens": plan.tokens,
        "packs": len(plan.packs),
        "efficiency": plan.efficiency,
        "seconds": seconds,
    }
    if as_json:
        typer.echo(json.dumps(result, ensure_ascii=False))
    Console(stderr=True).print(
        f"{result['rows']} rows, {plan.tokens:,} tokens in {len(plan.packs)} packs of {length}: "
        f"{plan.efficiency:.2%} filled, planned in {seconds:.2f} s; left out: {rows.left_out or 'none'}"
    )
