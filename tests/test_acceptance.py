"""What others read from an acceptance: whom to leave out, and how fast its GPUs trained."""

from typing import Any

import pytest

from seatrial.acceptance import Acceptance, NodeGrade, Part, excluded_nodes, training_baseline
from seatrial.records import CheckResult, Measurement, Verdict


def accepted(verdict: Verdict = Verdict.PASS, **fields: Any) -> Acceptance:
    return Acceptance(verdict=verdict, provenance={}, seconds=1.0, **{"checks": (), **fields})


def grade(host: str, verdict: Verdict) -> NodeGrade:
    return NodeGrade(host=host, verdict=verdict)


@pytest.mark.parametrize(
    ("acceptance", "hosts"),
    [
        (accepted(), ()),
        (accepted(Verdict.FAIL, host="n7"), ("n7",)),
        (accepted(Verdict.INCONCLUSIVE, host="n7"), ()),
        (
            accepted(
                Verdict.FAIL,
                host="n0",
                nodes=(grade("n0", Verdict.PASS), grade("n2", Verdict.FAIL), grade("n1", Verdict.WARN)),
            ),
            ("n2",),
        ),
        (
            accepted(
                Verdict.FAIL,
                host="n0",
                nodes=(grade("n0", Verdict.PASS), grade("n3", Verdict.FAIL)),
                culprits=({"host": "n1", "kind": "bad cable"}, {"host": "n3", "kind": "bad GPU"}),
            ),
            ("n1", "n3"),
        ),
    ],
)
def test_whoever_failed_or_is_to_blame_is_left_out(acceptance: Acceptance, hosts: tuple[str, ...]) -> None:
    assert excluded_nodes(acceptance) == hosts


def rates(*values: float) -> Acceptance:
    numbers = []
    for index, value in enumerate(values):
        where = f"n0 GPU {index} (GPU-{index})"
        for name, shown in (("step rate alone", value), ("step MFU", value / 40000)):
            numbers.append(Measurement(name=name, value=shown, unit="", n=9, spread=0.0, where=where))
    check = CheckResult(
        check="training.rate", question="", verdict=Verdict.PASS, reason="", measurements=tuple(numbers)
    )
    parts = tuple(
        Part(where=f"n0 GPU {index} (GPU-{index})", name="H200", serial="", uuid=f"GPU-{index}-long")
        for index in range(len(values))
    )
    return accepted(checks=(check,), parts=parts)


def test_the_baseline_is_that_of_the_median_gpu() -> None:
    baseline = training_baseline(rates(22000.0, 20000.0, 22000.0))
    assert baseline.mfu == pytest.approx(0.55)
    assert baseline.slowness == pytest.approx({"GPU-0-long": 1.0, "GPU-1-long": 1.1, "GPU-2-long": 1.0})


def test_without_gpus_nothing_is_known() -> None:
    assert training_baseline(accepted()).mfu is None
    assert training_baseline(accepted()).slowness == {}
