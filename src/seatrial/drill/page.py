"""The result of a drill as one self-contained page. Pure: text of the result alone."""

from importlib.resources import files

import jinja2

from seatrial.records import JsonObject


def render(result: JsonObject) -> str:
    """The page, which loads nothing from anywhere."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["seconds"] = _seconds
    template = environment.from_string((files("seatrial.drill") / "page.html.jinja").read_text())
    return template.render(result=result)


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.1f}"
