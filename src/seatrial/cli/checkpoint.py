"""seatrial checkpoint"""

from pathlib import Path
from typing import Annotated

import typer

from seatrial.errors import IntegrityError

app = typer.Typer(help="List, verify and consolidate the checkpoints of a run.", no_args_is_help=True)

Run = Annotated[Path, typer.Argument(help="a run directory")]
AsJson = Annotated[bool, typer.Option("--json", help="print the result to stdout")]


@app.callback()
def checkpoint() -> None:
    """List, verify and consolidate the checkpoints of a run."""


@app.command("list")
def list_(run: Run, as_json: AsJson = False) -> None:
    """What there is, newest first, by names and sizes alone."""
    _show(run, step=None, hashes=False, as_json=as_json)


@app.command("verify")
def verify(
    run: Run,
    step: Annotated[int | None, typer.Option(min=0, help="only the checkpoint of this step")] = None,
    as_json: AsJson = False,
) -> None:
    """Read every byte and hold it against the manifests; exit code 76 where one differs."""
    damaged = _show(run, step=step, hashes=True, as_json=as_json)
    if damaged:
        raise IntegrityError("\n".join(damaged))


@app.command("consolidate")
def consolidate(
    run: Run,
    out: Annotated[Path, typer.Option(help="an empty or new directory")],
    step: Annotated[int | None, typer.Option(min=0, help="of which step; the newest by default")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a checkpoint as a model, or as an adapter, that transformers and PEFT load. Needs no GPU, little memory."""
    import json

    from rich.console import Console

    from seatrial.export.consolidate import consolidate
    from seatrial.rundir import RunDir

    done = consolidate(RunDir(run), out, step=step)
    if as_json:
        typer.echo(json.dumps(done, indent=2))
    Console(stderr=True, highlight=False).print(
        f"{done['kind']} of step {done['step']} in {out}: {done['tensors']} tensors, {done['bytes'] / 1e9:.3g} GB",
        markup=False,
        soft_wrap=True,
    )


def _show(run: Path, *, step: int | None, hashes: bool, as_json: bool) -> list[str]:
    """Print what was found, and return what is wrong with it."""
    import json

    from rich.console import Console
    from rich.table import Table

    from seatrial.dist.checkpoint.place import look, storage_of
    from seatrial.rundir import RunDir

    found = look(storage_of(RunDir(run)), hashes=hashes, step=step)
    if as_json:
        typer.echo(json.dumps([one.as_json() for one in found], indent=2))
    table = Table("checkpoint", "step", "GB", "files", "ranks", "valid" if hashes else "complete")
    for one in found:
        row = (one.name, str(one.step), f"{one.size / 1e9:.3g}", str(one.files), str(one.world_size))
        table.add_row(*row, "no" if one.problem else "yes")
    Console(stderr=True, highlight=False).print(table)
    return [one.problem for one in found if one.problem]
