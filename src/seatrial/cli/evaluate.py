"""seatrial eval"""

from pathlib import Path
from typing import Annotated

import typer

from seatrial.errors import UsageError


def evaluate(
    suite: Annotated[Path, typer.Option(help="held-out records.jsonl, or a directory that holds one")],
    run_or_model: Annotated[
        Path | None, typer.Argument(help="a run directory, a model directory, or 'tiny'", show_default=False)
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="instead: an OpenAI-compatible server, such as http://localhost:8000/v1")
    ] = None,
    model: Annotated[str | None, typer.Option(help="the name by which the endpoint serves the model")] = None,
    out: Annotated[Path | None, typer.Option(help="result file; for a run, RUN/evals/SUITE.json by default")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="only the first rows of the suite")] = None,
    batch_size: Annotated[int, typer.Option(min=1, help="rows generated at a time; requests in flight")] = 64,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="longest answer")] = 256,
    json_output: Annotated[bool, typer.Option("--json", help="print the result as JSON on stdout")] = False,
) -> None:
    """Score tool calls on held-out conversations: exact calls, call recall and irrelevance, with 95 % intervals."""
    if (run_or_model is None) == (endpoint is None) or (endpoint is None) != (model is None):
        raise UsageError("say what to evaluate: RUN_OR_MODEL, or --endpoint URL with --model NAME")

    import torch
    from rich.console import Console

    from seatrial.evals.run import evaluate_endpoint, evaluate_model
    from seatrial.evals.suite import read_suite, write_result
    from seatrial.evals.table import result_table
    from seatrial.rundir import RunDir

    console = Console(stderr=True)
    held_out = read_suite(suite, limit)
    if run_or_model is not None:
        result, rows = evaluate_model(
            run_or_model,
            held_out,
            device=torch.device("cuda" if torch.cuda.is_available() else "cpu"),
            batch_size=batch_size,
            max_new_tokens=max_new_tokens,
            console=console,
        )
        run = RunDir(run_or_model)
        if out is None and run.settings.is_file():
            out = run.evals / f"{held_out.name}.json"
    elif endpoint is not None and model is not None:
        result, rows = evaluate_endpoint(
            endpoint, model, held_out, concurrency=batch_size, max_new_tokens=max_new_tokens, console=console
        )
    if out is not None:
        write_result(out, result, rows)
    console.print(result_table(result))
    if out is not None:
        console.print(f"{out} and, row by row, {out.with_suffix('.jsonl')}", markup=False, soft_wrap=True)
    if json_output:
        typer.echo(result.model_dump_json(indent=2))
