"""seatrial train"""

from pathlib import Path
from typing import Annotated

import typer


def train(
    config: Annotated[Path, typer.Argument(help="settings, in YAML")],
    overrides: Annotated[list[str] | None, typer.Argument(help="key=value, such as optimizer.steps=100")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="begin again; a run that is there is moved aside")] = False,
    fork: Annotated[
        Path | None, typer.Option(metavar="RUN", help="begin with the newest weights of another run, at step 0")
    ] = None,
) -> None:
    """Fine-tune a model; run it again to resume. Works alone and under torchrun."""
    from seatrial.settings import TrainSettings, load_settings

    settings = load_settings(config, overrides or [], TrainSettings)

    from seatrial.train.loop import train

    train(settings, fresh=fresh, fork=fork)
