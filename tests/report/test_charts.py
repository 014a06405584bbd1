"""Charts are drawn from the steps that count, and the same metrics always give the same text."""

import re
from dataclasses import asdict
from xml.etree import ElementTree

import pytest

from seatrial.records import JsonObject
from seatrial.report.charts import SMOOTH_FROM_STEPS, loss_chart, metric_chart
from tests.report.conftest import step_record


def metrics(*attempts: range) -> list[JsonObject]:
    return [asdict(step_record(step, number)) for number, steps in enumerate(attempts, 1) for step in steps]


def vertices(svg: str, colour: str) -> list[int]:
    """Numbers of points of the unfilled lines drawn in ``colour``."""
    lines = re.findall(rf'<path d="([^"]*)"[^>]*style="fill: none; stroke: {re.escape(colour)}', svg)
    return [len(re.findall(r"[ML] ", line)) for line in lines]


def test_a_chart_is_one_svg_element_of_the_asked_shape() -> None:
    svg = loss_chart(metrics(range(1, 31)), width=360, height=230)
    root = ElementTree.fromstring(svg)
    assert root.tag.endswith("svg") and root.get("viewBox") == "0 0 360 230"
    assert root.get("width") is None and "http" not in svg
    assert svg == loss_chart(metrics(range(1, 31)), width=360, height=230)


def test_a_replay_is_shaded_and_its_first_losses_are_rings() -> None:
    smooth = loss_chart(metrics(range(1, 31)), width=960, height=300)
    torn = loss_chart(metrics(range(1, 15), range(11, 31)), width=960, height=300)
    assert "var(--alarm)" not in smooth
    assert torn.count("var(--alarm)") > 0
    rings = re.search(r'<path id="([^"]*)"[^>]*style="stroke: var\(--alarm\)', torn)
    assert rings is not None
    assert torn.count(f'"#{rings.group(1)}"') == 4  # steps 11 to 14 of the first attempt
    assert vertices(torn, "var(--accent)") == vertices(smooth, "var(--accent)")


@pytest.mark.parametrize(("steps", "lines"), [(SMOOTH_FROM_STEPS, 1), (SMOOTH_FROM_STEPS + 1, 2)])
def test_long_curves_get_a_mean(steps: int, lines: int) -> None:
    assert len(vertices(loss_chart(metrics(range(1, steps + 1)), width=960, height=300), "var(--accent)")) == lines


def test_one_step_and_a_constant_can_be_drawn() -> None:
    for key in ("learning_rate", "tokens_per_s"):
        assert "<svg" in metric_chart(metrics(range(1, 2)), key, width=320, height=180)
