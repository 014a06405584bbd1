"""What nodes tell each other, through small files in the run directory that are replaced whole."""

import json
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from seatrial.dist.watchdog.verdict import RankView
from seatrial.records import JsonObject
from seatrial.rundir import RunDir

TELL_SECONDS = 2.0
"""How often a node tells the others how its ranks are."""


@dataclass(frozen=True)
class NodeReport:
    """``finding``: what this node has concluded; it is ending its ranks, and so should the others. ``what`` it was."""

    generation: str
    host: str
    number: int
    views: tuple[RankView, ...]
    finding: str = ""
    what: str = ""


def tell(run: Path, node: int, report: NodeReport) -> None:
    """Replace this node's file. Not fsynced: after a power cut nobody asks for it."""
    path = RunDir(run).node_report(node)
    path.parent.mkdir(exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(asdict(report)))
    temporary.replace(path)


def read_report(text: str) -> NodeReport | None:
    """None when it is not one of ours, or of another version."""
    try:
        content: JsonObject = json.loads(text)
        views = tuple(RankView(**view) for view in content.pop("views"))
        return NodeReport(views=views, **content)
    except (ValueError, TypeError, KeyError):
        return None


class OtherNodes:
    """What the other nodes told last, and how long ago by this node's clock: clocks of nodes differ."""

    def __init__(self, run: Path, node: int, nodes: int, generation: str) -> None:
        self._run, self._generation = run, generation
        self._others = [other for other in range(nodes) if other != node]
        self._began = time.monotonic()
        self._heard: dict[int, tuple[float, NodeReport]] = {}

    def read(self) -> None:
        """Look at all files; that of an earlier attempt says nothing."""
        for node in self._others:
            with suppress(OSError):
                report = read_report(RunDir(self._run).node_report(node).read_text())
                if report is None or report.generation != self._generation:
                    continue
                if node not in self._heard or self._heard[node][1].number != report.number:
                    self._heard[node] = time.monotonic(), report

    @property
    def views(self) -> list[RankView]:
        """Ranks of other nodes, as much later as their node has been silent."""
        return merge(dict(self._heard), time.monotonic())

    @property
    def concluded(self) -> NodeReport | None:
        """Of a node that has, one that knows a cause before one that saw a rank fail, perhaps for want of another."""
        reports = [report for _, report in self._heard.values() if report.finding]
        return min(reports, key=lambda report: report.what == "failed", default=None)


def merge(heard: Mapping[int, tuple[float, NodeReport]], now: float) -> list[RankView]:
    """Views as of ``now``, of reports that came when they say."""
    return [
        replace(view, idle_seconds=view.idle_seconds + now - when, silent_seconds=now - when)
        for when, report in heard.values()
        for view in report.views
    ]


def lowest_rank(views: Sequence[RankView]) -> int:
    return min((view.rank for view in views), default=-1)
