"""An acceptance as one HTML page that needs nothing else: no network, no script. Pure."""

import re
from collections.abc import Sequence
from importlib.resources import files
from typing import TypeVar

import jinja2
from markupsafe import Markup
from pydantic import ValidationError

from seatrial.accept import charts
from seatrial.accept.check import percentile
from seatrial.accept.checks.collectives import RanksFacts
from seatrial.accept.checks.fabric import PeerFacts
from seatrial.accept.cluster.checks import BlameFacts
from seatrial.accept.render import shown
from seatrial.acceptance import Acceptance
from seatrial.records import Frozen, JsonObject, Measurement

F = TypeVar("F", bound=Frozen)

Figure = tuple[str, Markup]
"""A heading, and the chart below it."""


def html(acceptance: Acceptance, facts: Sequence[JsonObject]) -> str:
    """``facts``: what ``facts.jsonl`` holds; what is not there, or does not parse, is not drawn."""
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    template = environment.from_string(files("seatrial").joinpath("accept/page.html.jinja").read_text())
    return template.render(acceptance=acceptance, figures=figures(acceptance, facts), shown=shown)


def figures(acceptance: Acceptance, facts: Sequence[JsonObject]) -> list[Figure]:
    found = {answer["check"]: answer["facts"] for answer in facts if "facts" in answer}
    return [*_curves(found), *_matrices(found), *_bars(acceptance)]


def _curves(found: dict[str, JsonObject]) -> list[Figure]:
    drawn: list[Figure] = []
    for check in ("collectives.nccl", "collectives.loopback"):
        ranks = _parsed(RanksFacts, found.get(check))
        if ranks is not None and ranks.steps:
            drawn.append((f"{check}: bandwidth by message size, {ranks.ranks} ranks", Markup(charts.curves(ranks))))
    return drawn


def _matrices(found: dict[str, JsonObject]) -> list[Figure]:
    drawn: list[Figure] = []
    peers = _parsed(PeerFacts, found.get("fabric.peer"))
    if peers is not None and peers.pairs:
        indices = sorted({gpu.index for pair in peers.pairs for gpu in (pair.source, pair.target)})
        rates = {(pair.source.index, pair.target.index): percentile(pair.gb_per_s, 50) for pair in peers.pairs}
        rows = [[rates.get((a, b)) for b in indices] for a in indices]
        labels = [f"GPU {index}" for index in indices]
        drawn.append(("Copies from one GPU (row) to another", Markup(charts.matrix(rows, labels, "GB/s"))))
    blame = _parsed(BlameFacts, found.get("cluster.blame"))
    if blame is not None and blame.rates:
        drawn.append(("Exchange of each pair of nodes", Markup(charts.matrix(blame.rates, blame.hosts, "GB/s"))))
    return drawn


def _bars(acceptance: Acceptance) -> list[Figure]:
    """Every rate that several GPUs have, one bar for each."""
    groups: dict[tuple[str, str, str], list[Measurement]] = {}
    for result in acceptance.checks:
        for number in result.measurements:
            if number.unit.endswith("/s") and re.search(r"GPU \d+ \([^)]*\)$", number.where):
                groups.setdefault((result.check, number.name, number.unit), []).append(number)
    return [
        (
            f"{check}: {name}",
            Markup(charts.bars([(number.where, number.value, number.spread) for number in numbers], unit, None)),
        )
        for (check, name, unit), numbers in groups.items()
    ]


def _parsed(kind: type[F], recorded: JsonObject | None) -> F | None:
    try:
        return None if recorded is None else kind.model_validate(recorded)
    except ValidationError:
        return None
