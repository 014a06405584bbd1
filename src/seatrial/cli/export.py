"""seatrial export"""

from pathlib import Path
from typing import Annotated

import typer


def export(
    run: Annotated[Path, typer.Argument(help="a finished run directory")],
    out: Annotated[Path, typer.Option(help="an empty or new directory")],
    merged: Annotated[bool, typer.Option("--merged", help="also write base and adapter as one model")] = False,
) -> None:
    """Hand the model over: the adapter in PEFT's layout, or merged in transformers' layout; both checked by logits."""
    import torch
    from rich.console import Console

    from seatrial.export.handover import export
    from seatrial.rundir import RunDir

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    done = export(RunDir(run), out, merged=merged, device=device)
    console = Console(stderr=True, highlight=False)
    for directory, difference in (
        (done.adapter, done.adapter_logit_difference),
        (done.merged, done.merged_logit_difference),
    ):
        if directory is not None:
            console.print(f"{directory}: logits within {difference:.2g} of the trained model")
