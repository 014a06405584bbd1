"""Faults that are injected are caught and blamed, and sound ranks are not. The slowest are left to
``seatrial accept self-test``.
"""

from pathlib import Path

import pytest

from seatrial.accept.check import Judgement
from seatrial.accept.cluster.node import clock_offset, clock_server
from seatrial.accept.selftest import faults
from seatrial.records import Verdict

QUICK = [fault for fault in faults.CATALOGUE if fault.name not in ("slow disk", "cut link", "delayed rank")]


@pytest.mark.parametrize("fault", QUICK, ids=lambda fault: fault.name)
def test_a_fault_is_caught_and_blamed_on_the_right_part(fault: faults.Fault, tmp_path: Path) -> None:
    found = fault.inject(tmp_path)
    assert found.name == fault.name
    assert found.caught and found.blamed_right, found


def test_sound_ranks_are_not_blamed(tmp_path: Path) -> None:
    judgement = faults.play_ranks(tmp_path, None)
    assert judgement.verdict is Verdict.PASS, judgement.reason


def test_nodes_of_which_one_dies_and_one_has_a_wrong_clock(tmp_path: Path) -> None:
    nodes = faults.run_nodes(tmp_path)
    for found in (faults.dead_node(nodes), faults.skewed_clock(nodes)):
        assert found.caught and found.blamed_right, found
    assert nodes.acceptance.verdict is Verdict.FAIL
    blame = nodes.of("cluster.blame")
    assert blame.verdict is Verdict.PASS and blame.reason.startswith("3 nodes"), blame
    assert (tmp_path / "nodes" / "acceptance.html").exists()


def test_the_recordings_are_healthy_before_anything_is_changed() -> None:
    for check in ("gpu.inventory", "gpu.memory_health", "gpu.pcie"):
        assert faults.judged(check, faults.recorded(check)).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("judgement", "caught", "blamed"),
    [
        (Judgement(Verdict.FAIL, "GPU 3 is slow"), True, True),
        (Judgement(Verdict.FAIL, "GPU 4 is slow"), True, False),
        (Judgement(Verdict.FAIL, "GPU 3 is slow; GPU 1 is slow"), True, False),
        (Judgement(Verdict.PASS, "GPU 3 is fine"), False, False),
        (Judgement(Verdict.INCONCLUSIVE, "GPU 3 crashed"), False, False),
    ],
)
def test_only_a_no_that_names_the_culprit_alone_counts(judgement: Judgement, caught: bool, blamed: bool) -> None:
    found = faults.caught("x", judgement, faults.RECORDED, "GPU 3", innocent=("GPU 1",))
    assert (found.caught, found.blamed_right) == (caught, blamed)


def test_clocks_of_one_machine_agree() -> None:
    with clock_server() as port:
        offset, half = clock_offset("127.0.0.1", port)
    assert abs(offset) <= half + 0.005
