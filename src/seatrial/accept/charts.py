"""Charts of an acceptance as SVG text: curves against what is expected, matrices of pairs, bars of GPUs. Pure."""

import io
import math
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from seatrial.accept.busbw import Layout, busbw_gb_per_s, expected_busbw, shown_bytes
from seatrial.accept.check import percentile
from seatrial.accept.checks.collectives import RanksFacts
from seatrial.accept.gpu_kinds import kind_of

INK, FAINT, ACCENT, RANGE, ALARM = "#52606d", "#d5dadd", "#0c6a80", "#9cc5cf", "#b4441f"
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "seatrial",
    "font.size": 10,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "text.color": INK,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
}


def curves(facts: RanksFacts) -> str:
    """Bus bandwidth by message size of each collective, over the range from floor to expectation where one is known."""
    names = list(dict.fromkeys(step.collective for step in facts.steps))
    kinds = {kind_of(name) for name in facts.gpu_names}
    kind = kinds.pop() if len(kinds) == 1 else None
    columns = min(3, len(names)) or 1
    rows = math.ceil(len(names) / columns) or 1
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(11, 2.9 * rows), layout="constrained")
        for index, name in enumerate(names):
            axes = figure.add_subplot(rows, columns, index + 1)
            steps = sorted((step for step in facts.steps if step.collective == name), key=lambda step: step.size_bytes)
            sizes = [step.size_bytes for step in steps]
            rates = [
                percentile([busbw_gb_per_s(name, step.size_bytes, s, facts.ranks) for s in step.seconds if s > 0], 50)
                for step in steps
            ]
            if kind is not None:
                layout = Layout(kind=kind, ranks=facts.ranks, linked=not kind.bridged)
                found = [
                    expected_busbw(layout, name, facts.choice.algorithm(name, size, facts.ranks) or "", size)
                    for size in sizes
                ]
                known = [(s, one.fail or 0.0, one.reference or 0.0) for s, one in zip(sizes, found, strict=True) if one]
                if known:
                    at, low, high = zip(*known, strict=True)
                    axes.fill_between(at, low, high, color=RANGE, alpha=0.5, label="floor to expected")
            axes.plot(sizes, rates, color=ACCENT, marker="o", markersize=3, label="measured")
            axes.set_xscale("log", base=2)
            ticks = sizes[:: max(1, len(sizes) // 4)]
            axes.set_xticks(ticks, [shown_bytes(size) for size in ticks])
            axes.set_ylim(bottom=0)
            axes.set_title(name.replace("_", "-"), fontsize=10, loc="left")
            if index % columns == 0:
                axes.set_ylabel("busbw, GB/s")
            if index == 0:
                axes.legend(fontsize=8, loc="upper left")
        return _svg(figure)


def matrix(rates: Sequence[Sequence[float | None]], labels: Sequence[str], unit: str) -> str:
    """Who exchanges how fast with whom; pairs that were not measured are left empty."""
    values = np.array([[np.nan if rate is None else rate for rate in row] for row in rates], dtype=float)
    count = len(labels)
    side = min(9.0, 2.2 + 0.32 * count)
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(side + 1.2, side), layout="constrained")
        axes = figure.add_subplot()
        shown = axes.pcolormesh(np.ma.masked_invalid(values), cmap="cividis", vmin=0)
        axes.set_aspect("equal")
        axes.invert_yaxis()
        every = max(1, count // 32)
        ticks = list(range(0, count, every))
        axes.set_xticks([tick + 0.5 for tick in ticks], [labels[tick] for tick in ticks], rotation=90, fontsize=8)
        axes.set_yticks([tick + 0.5 for tick in ticks], [labels[tick] for tick in ticks], fontsize=8)
        if count <= 16:
            middle = np.nanmax(values) / 2 if np.isfinite(values).any() else 0.0
            for (row, column), value in np.ndenumerate(values):
                if np.isfinite(value):
                    ink = "#000000" if value > middle else "#ffffff"
                    text = f"{value:.3g}"
                    axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=7, color=ink)
        figure.colorbar(shown, label=unit, shrink=0.8)
        return _svg(figure)


def bars(values: Sequence[tuple[str, float, float]], unit: str, floor: float | None) -> str:
    """(name, value, spread) of each part, beside the floor."""
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(8, 0.5 + 0.3 * len(values)), layout="constrained")
        axes = figure.add_subplot()
        names = [name for name, _, _ in values]
        axes.barh(
            names,
            [value for _, value, _ in values],
            xerr=[spread for _, _, spread in values],
            color=ACCENT,
            ecolor=INK,
            height=0.65,
        )
        axes.invert_yaxis()
        if floor is not None:
            axes.axvline(floor, color=ALARM, linewidth=1)
        axes.set_xlabel(unit)
        return _svg(figure)


def _svg(figure: Figure) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    drawn = text.getvalue()
    return drawn[drawn.index("<svg") :]
