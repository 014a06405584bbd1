"""A report as one self-contained page. Pure: what to say is decided here, how it looks in ``page.html.jinja``."""

import json
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from itertools import zip_longest

import jinja2
from markupsafe import Markup

from seatrial.data.conversation import Json, Message, ToolCall
from seatrial.evals.suite import JudgedRow
from seatrial.records import JsonObject, Measurement, Proportion, Verdict
from seatrial.report.charts import SMOOTH_FROM_STEPS, loss_chart, metric_chart
from seatrial.report.collect import Comparison, Report, Training
from seatrial.report.timeline import Replay, kept_steps, replays_of, timeline

_SAMPLES_OF_A_KIND = 8
_LONGEST_TEXT = 800

SHARES = (
    ("exact_call", "exact call"),
    ("call_recall", "call recall"),
    ("irrelevance", "irrelevance"),
    ("name_accuracy", "function names"),
    ("argument_accuracy", "arguments"),
)


@dataclass(frozen=True)
class Sample:
    """One judged row of the trained model, and what the model before training said to the same prompt."""

    suite: str
    row: JudgedRow
    before: JudgedRow | None


@dataclass(frozen=True)
class Figure:
    """One headline number."""

    label: str
    value: str
    note: str
    tone: str = ""


def render(report: Report, *, written: datetime) -> str:
    """The page as HTML text that loads nothing from anywhere; ``written`` is the date it bears."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "percent": percent,
        "interval": interval,
        "p_value": p_value,
        "clock": clock,
        "measured": measured,
        "call": call_text,
        "shortened": shortened,
        "flat": lambda value: list(flat(value)),
    }
    template = environment.from_string((files("seatrial.report") / "page.html.jinja").read_text())
    training = report.training
    return template.render(
        report=report,
        shares=SHARES,
        smooth_from_steps=SMOOTH_FROM_STEPS,
        figures=list(figures(report)),
        charts=charts(training.metrics) if training and training.metrics else None,
        replays=replays_of(training.metrics) if training else [],
        timeline=timeline(training.events, training.metrics) if training else [],
        right=samples(report.comparisons, right=True),
        wrong=samples(report.comparisons, right=False),
        steps=len(kept_steps(training.metrics)) if training else 0,
        written=f"{written:%Y-%m-%d %H:%M %Z}",
    )


def charts(metrics: Sequence[JsonObject]) -> dict[str, Markup]:
    """Inline SVG. The loss is drawn twice, for wide windows and for phones; the page shows one of them."""
    return {
        "loss_wide": Markup(loss_chart(metrics, width=960, height=300)),
        "loss_narrow": Markup(loss_chart(metrics, width=360, height=230)),
        "learning_rate": Markup(metric_chart(metrics, "learning_rate", width=320, height=180)),
        "grad_norm": Markup(metric_chart(metrics, "grad_norm", width=320, height=180)),
        "tokens_per_s": Markup(metric_chart(metrics, "tokens_per_s", width=320, height=180)),
    }


def figures(report: Report) -> Iterator[Figure]:
    """Headline numbers, of what there is."""
    if report.acceptance:
        verdicts = [check.verdict for check in report.acceptance.checks]
        passed, asked = verdicts.count(Verdict.PASS), len(verdicts) - verdicts.count(Verdict.SKIPPED)
        verdict = str(report.acceptance.verdict)
        yield Figure("acceptance", verdict, f"{passed} of {asked} checks passed", verdict.lower())
    if report.training and report.training.metrics:
        yield from _training_figures(report.training)
    summary = report.summary or {}
    if difference := _number(summary, "export", "max_logit_difference"):
        yield Figure("hand-over", difference, "largest logit difference after reloading")
    if seconds := _number(summary, "seconds", "total"):
        yield Figure("in all", f"{float(seconds):.0f} s", "from the first check to this page")


def _training_figures(training: Training) -> Iterator[Figure]:
    kept = kept_steps(training.metrics)
    yield Figure("training loss", f"{kept[-1]['loss']:.3g}", f"from {kept[0]['loss']:.3g}, in {len(kept):,} steps")
    median = statistics.median(record["tokens_per_s"] for record in kept)
    yield Figure("tokens per second", f"{median:,.0f}", "median over the steps")
    if replays := replays_of(training.metrics):
        worst = max(replay.max_loss_difference for replay in replays)
        yield Figure("interrupted", _times(len(replays)), _agreement(replays, worst), "" if worst == 0 else "warn")


def _agreement(replays: Sequence[Replay], worst: float) -> str:
    again = sum(replay.last_lost - replay.first_lost + 1 for replay in replays)
    steps = f"{again} step{'s' if again != 1 else ''} run again"
    return f"{steps}, equal to the last digit" if worst == 0 else f"{steps}, losses differ by {worst:.2g}"


def samples(comparisons: Sequence[Comparison], *, right: bool) -> list[Sample]:
    """A few rows, suites in turn and within a suite categories in turn, so that no kind crowds out the others."""
    suites = []
    for comparison in comparisons:
        before = {row.id: row for row in comparison.before.rows} if comparison.before else {}
        categories: dict[str, list[Sample]] = {}
        for row in comparison.after.rows if comparison.after else ():
            if row.score.right is right:
                sample = Sample(comparison.suite, row, before.get(row.id))
                categories.setdefault(row.score.category, []).append(sample)
        suites.append(_in_turn(categories.values()))
    return _in_turn(suites)[:_SAMPLES_OF_A_KIND]


def _in_turn(queues: Iterable[Sequence[Sample]]) -> list[Sample]:
    return [sample for turn in zip_longest(*queues) for sample in turn if sample is not None]


def percent(share: Proportion) -> str:
    if share.n == 0:
        return "–"
    return f"{100 * share.value:.1f}\u00a0%" if 0 < share.value < 1 else f"{100 * share.value:.0f}\u00a0%"


def interval(share: Proportion) -> str:
    """The 95 % interval in percent."""
    return f"{100 * share.low:.1f} to {100 * share.high:.1f}" if share.n else "no such rows"


def p_value(value: float) -> str:
    return "p < 0.0001" if value < 0.0001 else f"p = {value:.2g}"


def clock(seconds: float) -> str:
    """Time since the start as h:mm:ss, or m:ss in the first hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


def measured(measurement: Measurement) -> str:
    spread = f" ± {measurement.spread:.2g}" if measurement.spread else ""
    return f"{measurement.name}: {measurement.value:.4g}{spread} {measurement.unit}"


def call_text(turn: Message | Sequence[ToolCall]) -> str:
    """Calls one to a line, in the way of a function call with JSON values."""
    calls = turn.tool_calls if isinstance(turn, Message) else turn
    return "\n".join(
        f"{call.name}({', '.join(f'{name}={_json(value)}' for name, value in call.arguments.items())})"
        for call in calls
    )


def shortened(text: str) -> str:
    if len(text) <= _LONGEST_TEXT:
        return text
    return f"{text[:_LONGEST_TEXT]} … ({len(text) - _LONGEST_TEXT:,} characters more)"


def flat(value: JsonObject, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Leaves of nested objects as (dotted key, text)."""
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from flat(inner, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", inner if isinstance(inner, str) else _json(inner)


def _json(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


def _times(n: int) -> str:
    return "once" if n == 1 else f"{n} times"


def _number(summary: JsonObject, section: str, key: str) -> str:
    """A number of the summary as text; empty when it is not there."""
    value = summary.get(section)
    value = value.get(key) if isinstance(value, dict) else None
    return f"{value:.3g}" if isinstance(value, int | float) else ""
