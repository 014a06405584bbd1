"""seatrial bench"""

from pathlib import Path
from typing import Annotated

import typer

from seatrial.errors import UsageError

app = typer.Typer(help="Measure how fast this machine does what seatrial does.", no_args_is_help=True)


@app.callback()
def bench() -> None:
    """Measure how fast this machine does what seatrial does."""


@app.command("train")
def train(
    shape: Annotated[str, typer.Option(help="architecture, with random weights")] = "llama-3.1-8b",
    model: Annotated[str | None, typer.Option(help="real weights instead: a directory or a hub name")] = None,
    data: Annotated[Path | None, typer.Option(help="real rows instead: what `seatrial data prepare` wrote")] = None,
    method: Annotated[str, typer.Option(help="lora or full")] = "lora",
    base: Annotated[str, typer.Option(help="bf16, fp8 or nf4")] = "bf16",
    rank: Annotated[int, typer.Option(min=1, help="of the adapters")] = 64,
    length: Annotated[int, typer.Option(min=1, help="tokens of the longest row")] = 4096,
    batch: Annotated[str, typer.Option(help="rows of that length in a pack, or auto: as many as fit")] = "auto",
    lengths: Annotated[str, typer.Option(help="fixed: every row of that length; tool-calls: as real rows")] = "fixed",
    plan: Annotated[str, typer.Option(help="auto, replicate, shard or hybrid")] = "auto",
    exact: Annotated[str, typer.Option(help="auto, on or off, as run.exact of a training")] = "auto",
    packs: Annotated[int, typer.Option(min=1, help="that each GPU computes a step")] = 1,
    steps: Annotated[int, typer.Option(min=1, help="that are counted, after the warm-up")] = 20,
    json_file: Annotated[Path | None, typer.Option("--json", help="write the result here; - is stdout")] = None,
) -> None:
    """Training throughput on one GPU, or under torchrun on several."""
    import json

    from pydantic import ValidationError

    from seatrial.bench.train import BenchRequest, bench_train, say
    from seatrial.records import write_json

    if batch != "auto" and not (batch.isdecimal() and int(batch) > 0):
        raise UsageError(f"--batch {batch}: expected auto or a number of rows")
    try:
        request = BenchRequest.model_validate(
            {
                "shape": shape,
                "model": model,
                "data": data,
                "method": method,
                "base": base,
                "rank": rank,
                "length": length,
                "batch": None if batch == "auto" else int(batch),
                "lengths": lengths,
                "plan": plan,
                "exact": exact,
                "packs": packs,
                "steps": steps,
            }
        )
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"--{first['loc'][0]} {first['input']}: {first['msg']}") from error
    result = bench_train(request)
    if result is None:
        return
    say(result)
    if json_file is not None and str(json_file) == "-":
        typer.echo(json.dumps(result, indent=2))
    elif json_file is not None:
        write_json(json_file, result)
