"""This node's voice and ears among the others, in a thread that a dead file server may keep."""

import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from seatrial.dist.watchdog.ending import FAREWELL_SECONDS, Ending, of_link, of_silence
from seatrial.dist.watchdog.nodes import TELL_SECONDS, NodeReport, OtherNodes, tell, within
from seatrial.dist.watchdog.verdict import SILENT_SECONDS, Finding, RankView

HEAR_SECONDS = 0.25
RECORD_SECONDS = 3.0
"""What the file server of the run directory gets, whatever is asked of it."""


class Gossip:
    """Tells other nodes how this one is and hears how they are.

    Others are listened to only when our own ranks wait for something: with many nodes, files read would be too many.
    """

    def __init__(self, run: Path, node: int, nodes: int, *, generation: str, host: str) -> None:
        self._run_directory, self._node = run, node
        self._others = OtherNodes(run, node, nodes, generation)
        self._report = NodeReport(generation, host, 0, ())
        self._listening = self._has_ended = False
        self._due, self._one_at_a_time = threading.Event(), threading.Lock()
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def views(self) -> list[RankView]:
        """Ranks of other nodes; none while ours get further, and we do not listen."""
        return self._others.views if self._listening else []

    @property
    def concluded(self) -> Ending | None:
        """What another node ends its ranks for."""
        report = self._others.concluded
        if report is None:
            return None
        culprits = tuple(view for view in report.views if view.rank in report.ranks)
        event = "stall" if report.what == "stall" else "fault"
        return Ending(event, report.what, Finding(report.finding, culprits), FAREWELL_SECONDS, report.exit_code)

    def is_first_heard(self) -> bool:
        """Whether all nodes before this one are silent, and left nothing to say: one node writes for all."""
        silent = self._others.silent()
        return all(node in silent and not self._others.has_concluded(node) for node in range(self._node))

    def await_first(self) -> None:
        """Wait until a node before this one has concluded something, and writes for all, or all of them are silent."""
        began = time.monotonic()
        before = range(self._node)
        while not self.is_first_heard() and not any(map(self._others.has_concluded, before)):
            if time.monotonic() - began > 2 * SILENT_SECONDS:
                return
            time.sleep(HEAR_SECONDS)
            within(RECORD_SECONDS, self._others.read)

    def say(self, views: Sequence[RankView], median: float | None, ending: Ending | None) -> None:
        """What the next report holds; at once when it is the first with ranks, or this node ends them."""
        report = replace(self._report, views=tuple(views))
        if ending is not None:
            report = replace(
                report,
                finding=ending.finding.reason,
                what=ending.what,
                ranks=tuple(ending.finding.ranks),
                exit_code=ending.exit_code,
            )
        urgent = report.finding != self._report.finding or bool(views and not self._report.views)
        self._report = report
        self._listening = any(view.idle_seconds > 1.0 + 1.5 * (median or 0.0) for view in views)
        if urgent:
            self._due.set()

    def exchange(self, views: Sequence[RankView], noticed: float) -> bool:
        """Tell now, with stacks, and hear what the others see. Whether all have told something since we noticed that
        nobody gets further, or have long been silent: one that has not may be lost, and what it told last is old.
        """
        self._report = replace(self._report, views=tuple(views))
        within(RECORD_SECONDS, self._tell)
        time.sleep(2 * HEAR_SECONDS)
        within(RECORD_SECONDS, self._others.read)
        deadline = noticed + 2 * TELL_SECONDS
        while not self._others.known_since(noticed) and self.concluded is None and time.monotonic() < deadline:
            time.sleep(HEAR_SECONDS)
            within(RECORD_SECONDS, self._others.read)
        return self._others.known_since(noticed)

    def tell_end(self, views: Sequence[RankView], ending: Ending | None) -> None:
        """The last report of this node, so that its silence from now on means nothing."""
        self.say(views, None, ending)
        within(RECORD_SECONDS, self._tell_last)
        self._has_ended = True

    def agree(self, ending: Ending) -> Ending:
        """Where all that we know is that connections broke: what another node knows of the cause, or its silence.

        Waits for as long as no node names a cause, and one may still be found silent. Where all are heard, and none
        knows of a rank that was lost, no rank is to blame.
        """
        began = time.monotonic()
        while ending.is_echo:
            within(RECORD_SECONDS, self._others.read)
            told, waited = self.concluded, time.monotonic() - began
            if told is not None and not told.is_echo:
                return replace(told, at=ending.at)
            for node, seconds in self._others.silent().items():
                if self._others.is_under_way(node):
                    silence = of_silence(node, self._others.views_of(node), seconds)
                    return replace(silence, at=ending.at)
            if self._others.have_ended() or (waited > RECORD_SECONDS and self._others.heard_since(began)):
                return of_link(ending)
            time.sleep(HEAR_SECONDS)
        return ending

    def _tell(self) -> None:
        with self._one_at_a_time:
            if not self._has_ended:
                self._report = replace(self._report, number=self._report.number + 1)
                tell(self._run_directory, self._node, self._report)

    def _tell_last(self) -> None:
        self._tell()
        with self._one_at_a_time:
            self._has_ended = True  # the file may soon be a later attempt's

    def _run(self) -> None:
        told = float("-inf")
        while True:
            urgent = self._due.wait(HEAR_SECONDS if self._listening else TELL_SECONDS)
            self._due.clear()
            try:
                if urgent or time.monotonic() - told > TELL_SECONDS:
                    self._tell()
                    told = time.monotonic()
                if self._listening:
                    self._others.read()
            except OSError as error:  # the others take our silence for an answer
                print(f"watchdog: {error}", file=sys.stderr)  # noqa: T201
