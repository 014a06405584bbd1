"""seatrial report"""

from pathlib import Path
from typing import Annotated

import typer


def report(
    run: Annotated[Path, typer.Argument(help="a run directory, or what `seatrial demo --out` made")],
    out: Annotated[Path | None, typer.Option(help="the page; RUN/report.html by default")] = None,
) -> None:
    """One self-contained page about a run: the gain, the calls, the curve, the interruptions, the machine."""
    from datetime import UTC, datetime

    from rich.console import Console

    from seatrial.report.collect import collect
    from seatrial.report.html import render

    page = out or run / "report.html"
    html = render(collect(run), written=datetime.now(UTC))
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(html)
    Console(stderr=True).print(f"{page} ({len(html) / 1000:.0f} kB)", markup=False, soft_wrap=True)
