"""seatrial demo"""

from pathlib import Path
from typing import Annotated

import typer


def demo(
    out: Annotated[Path, typer.Option(help="where everything it makes goes")] = Path("runs/demo"),
    fresh: Annotated[bool, typer.Option("--fresh", help="start over, deleting a demo that is there")] = False,
) -> None:
    """The whole voyage on this machine: accept it, train on two processes, survive a kill, show the gain."""
    from rich.console import Console

    from seatrial.demo.voyage import sail

    sail(out, fresh=fresh, console=Console(stderr=True, highlight=False))
