"""Charts as SVG text for a page: colours come from the page's own variables, so they follow light and dark. Pure.

Each is drawn at the size it is meant for, in CSS pixels, so that its letters are as large as the page's.
"""

import io
import itertools
import re
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import MaxNLocator

from seatrial.records import JsonObject
from seatrial.report.timeline import kept_steps, replays_of

# Stand-ins that no chart uses otherwise; the SVG text gets the page's variable in their place.
INK, FAINT, ACCENT, ALARM = "#010203", "#040506", "#070809", "#0a0b0c"
_VARIABLES = {INK: "var(--muted)", FAINT: "var(--rule)", ACCENT: "var(--accent)", ALARM: "var(--alarm)"}

_PIXELS_PER_INCH = 72  # of matplotlib's SVG user units
SMOOTH_FROM_STEPS = 100
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "seatrial",
    "font.size": 11,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.formatter.useoffset": False,
    "grid.color": FAINT,
    "grid.linewidth": 0.8,
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "legend.frameon": False,
}


def loss_chart(metrics: Sequence[JsonObject], *, width: int, height: int) -> str:
    """Loss by step. Where an attempt ran steps again, the losses of the first time are rings on the curve."""
    with mpl.rc_context(_STYLE):
        figure, axes = _axes(width, height)
        steps, losses = _points(kept_steps(metrics), "loss")
        if len(steps) > SMOOTH_FROM_STEPS:
            axes.plot(steps, losses, color=ACCENT, linewidth=0.8, alpha=0.35)
            losses = _running_mean(losses, reach=max(2, len(steps) // 100))
        axes.plot(steps, losses, color=ACCENT, linewidth=1.8)
        for replay in replays_of(metrics):
            lost = [r for r in metrics if r["attempt"] < replay.attempt and r["step"] > replay.resumed_from]
            axes.axvspan(replay.resumed_from, replay.last_lost, color=ALARM, alpha=0.12, linewidth=0)
            axes.plot(
                *_points(lost, "loss"),
                color=ALARM,
                marker="o",
                markersize=4.5,
                markerfacecolor="none",
                markeredgewidth=1.1,
                linewidth=0,
            )
        return _svg(figure, f"loss-{width}")


def metric_chart(metrics: Sequence[JsonObject], key: str, *, width: int, height: int) -> str:
    """One quantity of the kept steps by step."""
    with mpl.rc_context(_STYLE):
        figure, axes = _axes(width, height)
        axes.plot(*_points(kept_steps(metrics), key), color=ACCENT, linewidth=1.4)
        axes.set_ylim(bottom=0)
        return _svg(figure, f"{key}-{width}")


def _axes(width: int, height: int) -> tuple[Figure, Axes]:
    size = (width / _PIXELS_PER_INCH, height / _PIXELS_PER_INCH)
    figure = Figure(figsize=size, layout=ConstrainedLayoutEngine(w_pad=0.02, h_pad=0.02))
    axes = figure.add_subplot()
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6 if width < 500 else 10, integer=True))
    axes.yaxis.set_major_locator(MaxNLocator(nbins=4))
    axes.margins(x=0.01)
    return figure, axes


def _points(records: Sequence[JsonObject], key: str) -> tuple[list[int], list[float]]:
    return [record["step"] for record in records], [record[key] for record in records]


def _running_mean(values: Sequence[float], *, reach: int) -> list[float]:
    """Mean of each value and its neighbours up to ``reach`` away, of fewer at the ends: centred, so it does not lag."""
    sums = [0.0, *itertools.accumulate(values)]
    means = []
    for i in range(len(values)):
        low, high = max(0, i - reach), min(len(values), i + reach + 1)
        means.append((sums[high] - sums[low]) / (high - low))
    return means


def _svg(figure: Figure, name: str) -> str:
    """An ``<svg>`` element without fixed size, foreign metadata or fonts; ids are its own, so several fit one page."""
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r'^<svg [^>]*?viewBox="([^"]*)"[^>]*>', rf'<svg viewBox="\1" role="img" aria-label="{name}">', svg)
    svg = re.sub(r"<defs>\s*<style.*?</style>\s*</defs>", "", svg, count=1, flags=re.DOTALL).replace("xlink:", "")
    svg = re.sub(r"font-family: [^;]*; ", "", svg)
    svg = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{name}-", svg)
    for stand_in, variable in _VARIABLES.items():
        svg = svg.replace(stand_in, variable)
    return svg
