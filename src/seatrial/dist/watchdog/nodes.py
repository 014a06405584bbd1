"""What nodes tell each other, through small files in the run directory that are replaced whole."""

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from seatrial.dist.watchdog.ending import strength
from seatrial.dist.watchdog.verdict import SILENT_SECONDS, RankView
from seatrial.errors import SeatrialError
from seatrial.records import JsonObject
from seatrial.rundir import RunDir

TELL_SECONDS = 2.0
"""How often a node tells the others how its ranks are."""


@dataclass(frozen=True)
class NodeReport:
    """``finding``: what this node has concluded; it is ending its ranks, and so should the others.

    ``what`` it was, which of its ``ranks`` are to blame, and what a rank's error ends the run with.
    """

    generation: str
    host: str
    number: int
    views: tuple[RankView, ...]
    finding: str = ""
    what: str = ""
    ranks: tuple[int, ...] = ()
    exit_code: int = SeatrialError.exit_code

    @property
    def is_under_way(self) -> bool:
        """Whether its ranks had not ended when it told this; ones that it has not seen yet had not."""
        return not self.finding and (not self.views or any(view.is_under_way for view in self.views))


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
        return NodeReport(views=views, ranks=tuple(content.pop("ranks")), **content)
    except (ValueError, TypeError, KeyError):
        return None


class OtherNodes:
    """What the other nodes told last, and how long ago by this node's clock: clocks of nodes differ."""

    def __init__(self, run: Path, node: int, nodes: int, generation: str) -> None:
        self._run, self._generation = run, generation
        self._others = [other for other in range(nodes) if other != node]
        self._heard: dict[int, tuple[float, NodeReport]] = {}
        self._told: dict[int, float] = {}  # when a report came while we looked: what is read first may be old
        self._read = self._reading_since = float("-inf")

    def read(self) -> None:
        """Look at all files; that of an earlier attempt says nothing."""
        now = time.monotonic()
        if now - self._read > 2 * TELL_SECONDS:
            self._reading_since = now  # what was told meanwhile we did not hear
            self._told.clear()
        for node in self._others:
            with suppress(OSError):
                report = read_report(RunDir(self._run).node_report(node).read_text())
                if report is None or report.generation != self._generation:
                    continue
                was_read = node in self._told
                self._told.setdefault(node, float("-inf"))
                if node not in self._heard or self._heard[node][1].number != report.number:
                    self._heard[node] = time.monotonic(), report
                    if was_read:
                        self._told[node] = time.monotonic()
        self._read = time.monotonic()

    @property
    def views(self) -> list[RankView]:
        """Ranks of other nodes, as much later as their node has been silent; none while the file server does not let
        us hear, when the silence may be ours."""
        if time.monotonic() - self._read > SILENT_SECONDS:
            return []
        heard = {node: (self._heard_at(node), report) for node, (_, report) in dict(self._heard).items()}
        return merge(heard, self._read)

    def views_of(self, node: int) -> tuple[RankView, ...]:
        """As the node told last."""
        return self._heard[node][1].views if node in self._heard else ()

    @property
    def concluded(self) -> NodeReport | None:
        """Of a node that has, one that knows the cause before one that knows what became of it."""
        reports = [report for _, report in list(self._heard.values()) if report.finding]
        return min(reports, key=lambda report: strength(report.what), default=None)

    def has_concluded(self, node: int) -> bool:
        return node in self._heard and bool(self._heard[node][1].finding)

    def is_under_way(self, node: int) -> bool:
        """By what it told last; also of a node that never told anything."""
        return node not in self._heard or self._heard[node][1].is_under_way

    def silent(self) -> dict[int, float]:
        """Nodes that told nothing new for too long while we looked, and for how many seconds."""
        quiet = {node: self._read - self._heard_at(node) for node in self._others}
        return {node: seconds for node, seconds in quiet.items() if seconds > SILENT_SECONDS}

    def heard_since(self, then: float) -> bool:
        """Whether every other node has told something, or had ended before. ``then``: monotonic seconds."""
        return all(self._is_known(node, then) for node in self._others)

    def known_since(self, then: float) -> bool:
        """The same, or is silent for long enough to say so."""
        silent = self.silent()
        return all(node in silent or self._is_known(node, then) for node in self._others)

    def _heard_at(self, node: int) -> float:
        """When it told something last, as far as we listened: since we do, at the earliest."""
        when = self._heard[node][0] if node in self._heard else 0.0
        return max(when, self._reading_since)

    def _is_known(self, node: int, then: float) -> bool:
        return not self.is_under_way(node) or self._told.get(node, 0.0) > then

    def have_ended(self) -> bool:
        """Whether no other node has more to tell."""
        return not any(map(self.is_under_way, self._others))


def merge(heard: Mapping[int, tuple[float, NodeReport]], now: float) -> list[RankView]:
    """Views as of ``now``, of reports that came when they say."""
    return [
        replace(view, idle_seconds=view.idle_seconds + age, silent_seconds=age)
        for when, report in heard.values()
        for age in [max(0.0, now - when)]  # it may come while others look
        for view in report.views
    ]


def within(seconds: float, act: Callable[[], object]) -> None:
    """Do it, but never wait longer for the file server of the run directory."""
    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    thread.join(seconds)
