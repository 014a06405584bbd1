"""What got worse between two acceptances, by part and not by slot."""

from seatrial.accept.compare import compare
from seatrial.acceptance import Acceptance, Part
from seatrial.records import CheckResult, Measurement, Verdict


def accepted(host: str, rates: dict[str, float], verdict: Verdict = Verdict.PASS, spread: float = 1.0) -> Acceptance:
    """``rates`` by serial number."""
    parts = tuple(Part(where=f"GPU {i} ({s})", name="H200", serial=s) for i, s in enumerate(rates))
    numbers = tuple(
        Measurement(name="bf16 GEMM", value=rate, unit="TFLOP/s", n=9, spread=spread, where=part.where)
        for part, rate in zip(parts, rates.values(), strict=True)
    )
    check = CheckResult(check="gpu.gemm_bf16", question="?", verdict=verdict, reason="so", measurements=numbers)
    return Acceptance(verdict=verdict, checks=(check,), provenance={}, seconds=1.0, host=host, parts=parts)


def changes(first: Acceptance, second: Acceptance) -> dict[str, str]:
    return {one.what: one.change for one in compare(first, second).differences}


def test_a_board_that_moved_to_another_slot_is_compared_with_itself() -> None:
    found = changes(accepted("a", {"s1": 680.0, "s2": 640.0}), accepted("a", {"s2": 641.0, "s1": 600.0}))
    assert found == {
        "gpu.gemm_bf16": "same",
        "gpu.gemm_bf16, serial s1: bf16 GEMM": "worse",
        "gpu.gemm_bf16, serial s2: bf16 GEMM": "same",
    }
    assert compare(accepted("a", {"s1": 680.0}), accepted("a", {"s1": 600.0})).worse


def test_what_lies_within_the_spread_is_the_same() -> None:
    noisy = compare(accepted("a", {"s": 680.0}, spread=50.0), accepted("a", {"s": 600.0}, spread=50.0))
    assert not noisy.worse


def test_a_graver_verdict_is_worse_and_a_milder_one_better() -> None:
    fine, failed = accepted("a", {}), accepted("b", {}, Verdict.FAIL)
    assert compare(fine, failed).worse and not compare(failed, fine).worse
    assert changes(failed, fine) == {"gpu.gemm_bf16": "better"}
    skipped = accepted("a", {}, Verdict.SKIPPED)
    assert changes(failed, skipped) == {"gpu.gemm_bf16": "only in the first"}
