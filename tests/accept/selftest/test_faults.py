"""The self-test, whole: every fault is caught and blamed on the right part, and nobody else."""

import os

import pytest

from seatrial.accept.check import Judgement
from seatrial.accept.cluster.node import clock_offset, clock_server
from seatrial.accept.selftest import faults, injected
from seatrial.records import Verdict
from seatrial.shell import run


@pytest.mark.alone
def test_every_fault_is_caught_and_blamed_on_the_right_part() -> None:
    """In one test, since what it takes is the starting of processes."""
    found = list(faults.self_test())
    missed = [one for one in found if not (one.caught and one.blamed_right)]
    assert not missed, missed
    names = [fault.name for fault in faults.CATALOGUE]
    assert [one.name for one in found] == [
        *names,
        *("delayed rank", "wrong result bit", "dead node", "skewed clock", "cut link"),
    ]
    if _has_namespaces():
        recorded = [one.name for one in found if one.name in faults.NAMESPACED and one.how == injected.RECORDED]
        assert not recorded, f"namespaces are there, and these were recordings: {recorded}"


def test_faults_in_namespaces_are_real_here() -> None:
    """CI must have them; a machine that does not is told what it does not prove."""
    if _has_namespaces():
        return
    why = f"no namespaces of our own (unshare -rn): recordings stand for {', '.join(faults.NAMESPACED)}"
    if os.environ.get("SEATRIAL_REQUIRE_LAUNCHERS") == "1":
        pytest.fail(why)
    pytest.skip(why)


def _has_namespaces() -> bool:
    return run(["unshare", "-rn", "true"], timeout_seconds=20).ok


def test_the_recordings_are_healthy_before_anything_is_changed() -> None:
    for check in ("gpu.inventory", "gpu.memory_health", "gpu.pcie", "gpu.gemm_bf16"):
        assert injected.judged(check, injected.recorded(check)).verdict is Verdict.PASS


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
    found = injected.caught("x", judgement, injected.RECORDED, "GPU 3", innocent=("GPU 1",))
    assert (found.caught, found.blamed_right) == (caught, blamed)


def test_clocks_of_one_machine_agree() -> None:
    with clock_server() as port:
        offset, half = clock_offset("127.0.0.1", port)
    assert abs(offset) <= half + 0.005
