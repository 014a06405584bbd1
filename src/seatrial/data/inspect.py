"""Looking at a dataset as the model will see it: lengths, calls, tools, what is trained on, and single rows."""

import itertools
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from pydantic import computed_field
from rich.table import Table
from rich.text import Text

from seatrial.data.conversation import Conversation, Rejection, read_records, records_file
from seatrial.data.pack import plan_epoch
from seatrial.data.pool import map_records
from seatrial.data.render import Rendered, Renderer, TrainOn
from seatrial.errors import UsageError
from seatrial.records import Frozen

PERCENTILES = (1, 5, 25, 50, 75, 95, 99, 100)


class Statistics(Frozen):
    """A dataset in numbers. Lengths are in tokens; ``calls`` and ``tools`` count rows by how many they hold.

    ``rejected`` counts rows that cannot be rendered, ``left_out`` those that the preparation turned away.
    """

    rows: int
    left_out: dict[str, int]
    rejected: dict[str, int]
    tokens: int
    trained_tokens: int
    lengths: tuple[int, ...]
    length_percentiles: dict[str, int]
    calls: dict[int, int]
    tools: dict[int, int]
    rows_with_call: int
    pack_length: int
    packs: int
    pack_efficiency: float
    over_long: int

    @computed_field  # type: ignore[prop-decorator]  # mypy issue 14461
    @property
    def trained_share(self) -> float:
        return self.trained_tokens / self.tokens if self.tokens else 0.0


def statistics(path: Path, renderer: Renderer, *, pack_length: int, train_on: TrainOn = TrainOn.ALL) -> Statistics:
    """Render every record at ``path`` and count.

    Raises:
        UsageError: no such file, or a line that is not a record, or no row at all.
    """
    lengths: list[int] = []
    calls: Counter[int] = Counter()
    tools: Counter[int] = Counter()
    rejected: Counter[str] = Counter()
    trained_tokens = 0
    for length, trained, row_calls, row_tools, reason in map_records(_look_at, (renderer, train_on), path):
        calls[row_calls] += 1
        tools[row_tools] += 1
        if reason:
            rejected[reason] += 1
        else:
            lengths.append(length)
            trained_tokens += trained
    if not calls:
        raise UsageError(f"{path}: there is no row in it")
    fitting = [length for length in lengths if length <= pack_length]
    plan = plan_epoch(fitting, pack_length, seed=0, epoch=0)
    found = np.percentile(lengths or [0], PERCENTILES, method="higher").astype(int).tolist()
    return Statistics(
        rows=calls.total(),
        left_out=_left_out(path),
        rejected=dict(rejected.most_common()),
        tokens=sum(lengths),
        trained_tokens=trained_tokens,
        lengths=tuple(lengths),
        length_percentiles={f"p{share}": length for share, length in zip(PERCENTILES, found, strict=True)},
        calls=dict(sorted(calls.items())),
        tools=dict(sorted(tools.items())),
        rows_with_call=calls.total() - calls[0],
        pack_length=pack_length,
        packs=len(plan.packs),
        pack_efficiency=plan.efficiency,
        over_long=len(lengths) - len(fitting),
    )


def table(statistics: Statistics) -> Table:
    """The statistics for the terminal."""
    shown = Table("measure", "value", title=f"{statistics.rows} rows")
    for label, counts in (("left out", statistics.left_out), ("rejected", statistics.rejected)):
        for reason, count in counts.items():
            shown.add_row(f"{label}: {reason}", str(count))
    shown.add_row("tokens", f"{statistics.tokens:,}")
    shown.add_row("trained on", f"{statistics.trained_tokens:,} ({statistics.trained_share:.1%})")
    shown.add_row("length", "  ".join(f"{name} {length}" for name, length in statistics.length_percentiles.items()))
    shown.add_row(
        "rows with a call", f"{statistics.rows_with_call} ({statistics.rows_with_call / statistics.rows:.1%})"
    )
    shown.add_row("rows by calls", _counts(statistics.calls))
    shown.add_row("rows by tools", _counts(statistics.tools))
    shown.add_row(
        f"packs of {statistics.pack_length}",
        f"{statistics.packs}, {statistics.pack_efficiency:.1%} filled; {statistics.over_long} rows are longer",
    )
    return shown


def plot(statistics: Statistics, file: Path) -> None:
    """Histograms of lengths, calls, tools and rejections into ``file``; its suffix chooses the format.

    Raises:
        UsageError: matplotlib does not know the format, or the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 3.5), layout="constrained")
    figure.suptitle(
        f"{statistics.rows:,} rows, {statistics.tokens:,} tokens, {statistics.trained_share:.1%} trained on; "
        f"{statistics.packs:,} packs, {statistics.pack_efficiency:.1%} filled"
    )
    by_length, by_calls, by_tools, by_reason = figure.subplots(1, 4)
    by_length.hist(statistics.lengths, bins=50)
    by_length.axvline(statistics.pack_length, linestyle="--", color="black", label=f"pack of {statistics.pack_length}")
    by_length.set(xlabel="tokens", ylabel="rows")
    by_length.legend()
    for axes, counts, label in ((by_calls, statistics.calls, "calls"), (by_tools, statistics.tools, "tools")):
        axes.bar(list(counts), list(counts.values()))
        axes.set(xlabel=label, ylabel="rows")
        axes.xaxis.get_major_locator().set_params(integer=True)
    reasons = statistics.left_out | statistics.rejected
    by_reason.barh(list(reasons), list(reasons.values()))
    by_reason.set(xlabel="rows", title="left out or rejected" if reasons else "none left out or rejected")
    by_reason.tick_params("y", labelsize="small")
    try:
        figure.savefig(file)
    except (ValueError, OSError) as error:
        raise UsageError(f"--plot {file}: cannot be written: {error}") from error


def row_text(path: Path, renderer: Renderer, number: int, train_on: TrainOn = TrainOn.ALL) -> Text:
    """Row ``number`` (from 1) as the model sees it: token by token, those that are trained on in green.

    Every other token is underlined, so that their borders show.

    Raises:
        UsageError: no such row, or it cannot be rendered.
    """
    row = next(itertools.islice(read_records(path), number - 1, None), None) if number > 0 else None
    if row is None:
        raise UsageError(f"--row {number}: {path} does not have so many rows; they are counted from 1")
    rendered = renderer.render(row, train_on)
    if isinstance(rendered, Rejection):
        raise UsageError(f"--row {number}: cannot be rendered: {rendered.reason}: {rendered.detail}")
    shown = Text()
    for at, (piece, trained) in enumerate(_pieces(renderer, rendered)):
        shown.append(piece, style=("green" if trained else "bright_black") + (" underline" if at % 2 else ""))
    return shown


def _pieces(renderer: Renderer, rendered: Rendered) -> Iterator[tuple[str, bool]]:
    """Text of each token, or of the few together that make up a character, and whether it is trained on."""
    start = 0
    for end in range(1, len(rendered.ids) + 1):
        piece = renderer.decode(rendered.ids[start:end])
        if not piece.endswith("\N{REPLACEMENT CHARACTER}") or end == len(rendered.ids):
            yield piece, bool(rendered.trained[end - 1])
            start = end


def _left_out(path: Path) -> dict[str, int]:
    """What ``manifest.json`` beside the records says of rejected rows; nothing where there is none."""
    manifest = records_file(path).with_name("manifest.json")
    if not manifest.is_file():
        return {}
    return dict(json.loads(manifest.read_text()).get("rejected", {}))


def _look_at(shared: tuple[Renderer, TrainOn], _: int, row: Conversation) -> tuple[int, int, int, int, str]:
    """Length, trained tokens, calls, tools, and the reason of a rejection."""
    renderer, train_on = shared
    calls = sum(len(message.tool_calls) for message in row.messages)
    rendered = renderer.render(row, train_on)
    if isinstance(rendered, Rejection):
        return 0, 0, calls, len(row.tools), rendered.reason
    return len(rendered.ids), int(rendered.trained[1:].sum()), calls, len(row.tools), ""


def _counts(counts: dict[int, int], most: int = 12) -> str:
    shown = [f"{value}: {count}" for value, count in itertools.islice(counts.items(), most)]
    return "  ".join(shown) + ("  ..." if len(counts) > most else "")
