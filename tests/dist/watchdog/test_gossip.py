"""What nodes conclude from each other's files, and from there being none."""

import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.dist.watchdog import gossip, nodes
from seatrial.dist.watchdog.ending import Ending
from seatrial.dist.watchdog.gossip import Gossip
from seatrial.dist.watchdog.nodes import NodeReport, OtherNodes, read_report, tell
from seatrial.dist.watchdog.verdict import Finding, RankView
from seatrial.rundir import RunDir

OURS = "3-c0ffee00"
LOST = Ending("fault", "connection lost", Finding("rank 0: RuntimeError: Connection closed by peer"), 12.0, at=500.0)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "SILENT_SECONDS", 0.6)
    monkeypatch.setattr(gossip, "SILENT_SECONDS", 0.6)
    monkeypatch.setattr(gossip, "TELL_SECONDS", 0.1)
    monkeypatch.setattr(gossip, "RECORD_SECONDS", 0.2)
    monkeypatch.setattr(gossip, "HEAR_SECONDS", 0.02)


def view(rank: int, phase: str = "step", state: str = "S") -> RankView:
    return RankView(rank, f"node-{rank}", 1000 + rank, phase, 7, 0, 0.1, state)


def report(node: int, **said: object) -> NodeReport:
    plain = NodeReport(OURS, f"node-{node}", 1, (view(node),))
    return replace(plain, **said)  # type: ignore[arg-type]


def agreed(run: Path, count: int, *reports: NodeReport, ending: Ending = LOST) -> Ending:
    """What the first of ``count`` nodes concludes when the others told these reports and then no more."""
    for node, said in enumerate(reports, 1):
        tell(run, node, said)
    return Gossip(run, 0, count, generation=OURS, host="node-0").agree(ending)


def test_a_report_is_read_as_it_was_told(tmp_path: Path) -> None:
    told = report(1, finding="row 17 is torn", what="failed", ranks=(1,), exit_code=76)
    tell(tmp_path, 1, told)
    assert read_report(RunDir(tmp_path).node_report(1).read_text()) == told
    assert read_report("{}") is None


def test_a_node_that_knows_the_cause_is_believed_at_once(tmp_path: Path) -> None:
    own = report(1, finding="row 17 is torn", what="failed", ranks=(1,), exit_code=76)
    echo = report(2, finding=LOST.finding.reason, what=LOST.what, ranks=(2,))
    ending = agreed(tmp_path, 3, own, echo)
    assert (ending.what, ending.finding.reason, ending.exit_code) == ("failed", "row 17 is torn", 76)
    assert ending.finding.ranks == [1]
    assert ending.at == LOST.at, "it happened before we saw what became of it"


def test_a_stall_that_another_node_found_first_is_a_stall(tmp_path: Path) -> None:
    """With its ranks' views, which have been ended by then, ours would be all that wait."""
    ended = view(1, state="")
    tell(tmp_path, 1, report(1, finding="all 2 ranks wait", what="stall", views=(ended,)))
    ours = Gossip(tmp_path, 0, 2, generation=OURS, host="node-0")
    ours.exchange([view(0)], time.monotonic())
    assert ours.concluded is not None
    assert (ours.concluded.event, ours.concluded.finding.reason) == ("stall", "all 2 ranks wait")


def test_what_was_told_before_is_not_enough_to_blame_anybody(tmp_path: Path) -> None:
    """The node may have been lost just then, which is known when it has been silent for long enough."""
    tell(tmp_path, 1, report(1))
    ours = Gossip(tmp_path, 0, 2, generation=OURS, host="node-0")
    ours.say([replace(view(0), idle_seconds=5.0)], None, None)
    assert not ours.exchange([view(0)], time.monotonic())
    time.sleep(0.7)
    assert ours.exchange([view(0)], time.monotonic())
    (known,) = ours.views
    assert known.silent_seconds > 0.6


def test_a_node_that_tells_something_new_is_known(tmp_path: Path) -> None:
    tell(tmp_path, 1, report(1))
    ours = Gossip(tmp_path, 0, 2, generation=OURS, host="node-0")
    ours.say([replace(view(0), idle_seconds=5.0)], None, None)
    time.sleep(0.2)
    noticed = time.monotonic()
    tell(tmp_path, 1, report(1, number=2))
    assert ours.exchange([view(0)], noticed)


def test_what_happened_to_our_own_needs_no_other_word(tmp_path: Path) -> None:
    began = time.monotonic()
    own = Ending("fault", "killed", Finding("rank 0 was killed"), 2.0)
    assert agreed(tmp_path, 2, report(1), ending=own) is own
    assert time.monotonic() - began < 0.2


def test_a_node_that_was_under_way_and_tells_no_more_is_the_cause(tmp_path: Path) -> None:
    ended = report(1, views=(view(1, "done"),))
    ending = agreed(tmp_path, 3, ended, report(2))
    assert (ending.what, ending.finding.ranks) == ("node silent", [2])
    assert "node 2 (node-2, rank 2) has told nothing" in ending.finding.reason


def test_a_node_that_never_told_anything_is_silent_too(tmp_path: Path) -> None:
    """The file that is there is of another attempt of the same number, in a run that was moved aside."""
    ending = agreed(tmp_path, 2, report(1, generation="3-deadbeef", finding="an old cause", what="killed"))
    assert (ending.what, ending.finding.ranks) == ("node silent", [])
    assert "node 1, never heard of, has told nothing" in ending.finding.reason


def test_where_all_lost_connections_and_none_a_rank_a_link_is_cut(tmp_path: Path) -> None:
    ending = agreed(tmp_path, 2, report(1, finding="rank 1: Timed out", what="connection lost", ranks=(1,)))
    assert (ending.what, ending.finding.ranks) == ("connection lost", [])
    assert "no node lost a rank, and none is silent: a link between nodes is cut" in ending.finding.reason


def test_a_node_that_still_tells_is_not_silent(tmp_path: Path) -> None:
    others = OtherNodes(tmp_path, 0, 2, OURS)
    until, number = time.monotonic() + 1.0, 0
    while time.monotonic() < until:
        number += 1
        tell(tmp_path, 1, report(1, number=number))
        others.read()
        assert others.silent() == {}
        time.sleep(0.05)
    assert others.heard_since(until - 0.5)
    time.sleep(0.7)
    others.read()
    assert list(others.silent()) == [1]


def test_what_was_told_while_nobody_listened_is_no_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "TELL_SECONDS", 0.1)
    others = OtherNodes(tmp_path, 0, 2, OURS)
    tell(tmp_path, 1, report(1))
    others.read()
    time.sleep(0.7)
    others.read()
    assert others.silent() == {}, "it is listened to again from here"


def test_the_first_node_that_is_heard_writes_for_all(tmp_path: Path) -> None:
    tell(tmp_path, 0, report(0))
    second = Gossip(tmp_path, 1, 2, generation=OURS, host="node-1")
    assert not second.is_first_heard()
    assert second.agree(LOST).what == "node silent"
    assert second.is_first_heard()
    assert Gossip(tmp_path, 0, 2, generation=OURS, host="node-0").is_first_heard()
    tell(tmp_path, 0, report(0, number=2, finding="rank 0 was killed", what="killed"))
    third = Gossip(tmp_path, 1, 2, generation=OURS, host="node-1")
    assert third.agree(LOST).what == "killed"
    assert not third.is_first_heard(), "the first node has said it, however silent it is now"


@pytest.mark.parametrize("concludes", [True, False])
def test_somebody_writes_what_a_later_node_knows(tmp_path: Path, concludes: bool) -> None:
    """The first node where it has heard of it, and the second where the first one is lost before it can."""
    tell(tmp_path, 0, report(0))
    second = Gossip(tmp_path, 1, 2, generation=OURS, host="node-1")
    first_tells = threading.Timer(
        0.2, tell, (tmp_path, 0, report(0, number=2, finding="rank 1 was killed", what="killed"))
    )
    if concludes:
        first_tells.start()
    began = time.monotonic()
    second.await_first()
    assert time.monotonic() - began < 1.0
    assert second.is_first_heard() != concludes


def test_the_last_word_of_a_node_is_told_once(tmp_path: Path) -> None:
    ours = Gossip(tmp_path, 0, 2, generation=OURS, host="node-0")
    ours.tell_end([view(0, "done")], None)
    said = read_report(RunDir(tmp_path).node_report(0).read_text())
    assert said is not None and not said.is_under_way
    tell(tmp_path, 0, report(0, generation="4-c0ffee01"))
    ours.say([view(0)], None, LOST)
    time.sleep(0.2)
    later = read_report(RunDir(tmp_path).node_report(0).read_text())
    assert later is not None and later.generation == "4-c0ffee01", "the file is a later attempt's"
