"""A suite's result for the terminal. Pure."""

from rich.markup import escape
from rich.table import Table

from seatrial.evals.suite import SuiteResult
from seatrial.records import Proportion


def result_table(result: SuiteResult) -> Table:
    """One line a category and the whole suite last, in 80 columns; 95 % intervals in brackets."""
    table = Table(
        title=f"{escape(result.suite)}: {result.n} rows, {result.rows_per_s:.3g} rows/s",
        title_justify="left",
        caption=_unreadable(result),
        caption_justify="left",
        box=None,
        padding=(0, 1, 0, 0),
    )
    table.add_column("category")
    for column in ("exact call", "call recall", "irrelevance", "names", "args"):
        table.add_column(column, justify="right")
    for category, scores in (*result.categories.items(), ("all", result)):
        intervals = map(_with_interval, (scores.exact_call, scores.call_recall, scores.irrelevance))
        table.add_row(escape(category), *intervals, *map(_percent, (scores.name_accuracy, scores.argument_accuracy)))
    return table


def _unreadable(result: SuiteResult) -> str:
    malformed = ", ".join(f"{count} {reason}" for reason, count in result.parse_failures.items()) or "none"
    return f"malformed calls: {escape(malformed)}; cut off at the token limit: {result.unfinished}"


def _with_interval(share: Proportion) -> str:
    return f"{_percent(share)} ({100 * share.low:.0f}-{100 * share.high:.0f})" if share.n else "-"


def _percent(share: Proportion) -> str:
    return f"{share.value:.1%}" if share.n else "-"
