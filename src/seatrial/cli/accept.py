"""seatrial accept"""

from pathlib import Path
from typing import Annotated

import typer


def accept(
    out: Annotated[Path, typer.Option(help="where acceptance.json goes")] = Path("acceptance"),
    json_file: Annotated[Path | None, typer.Option("--json", help="also write the result here")] = None,
) -> None:
    """Acceptance-test this machine: is every part what was paid for, and if not, which one?"""
