"""seatrial data: the table of its verbs."""

import typer

from seatrial.cli import data_fetch, data_inspect, data_pack, data_prepare, data_synthesize, data_validate

app = typer.Typer(help="Prepare, check and look at training data.", no_args_is_help=True)
app.command("prepare")(data_prepare.prepare)
app.command("validate")(data_validate.validate)
app.command("inspect")(data_inspect.inspect)
app.command("pack")(data_pack.pack)
app.command("synthesize")(data_synthesize.synthesize)
app.command("fetch")(data_fetch.fetch)
