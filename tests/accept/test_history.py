"""A part that fades is seen by its serial number, though it is above its floor and moved to another slot."""

from pathlib import Path

import pytest

from seatrial.accept.history import past_of, read_past, with_past
from seatrial.accept.parts import gpu_label, gpu_parts
from seatrial.acceptance import Acceptance, Part, read_acceptance
from seatrial.errors import UsageError
from seatrial.records import CheckResult, Measurement, Verdict, write_json

from .healthy import DRIVER


def result(value: float, where: str, unit: str = "TFLOP/s") -> CheckResult:
    number = Measurement(name="bf16 GEMM", value=value, unit=unit, n=9, spread=1.0, where=where)
    return CheckResult(check="gpu.gemm_bf16", question="?", verdict=Verdict.PASS, reason="fine", measurements=(number,))


def accepted(value: float, where: str, serial: str) -> Acceptance:
    part = Part(where=where, name="NVIDIA H200", serial=serial)
    return Acceptance(verdict=Verdict.PASS, checks=(result(value, where),), provenance={}, seconds=1.0, parts=(part,))


PAST = past_of([accepted(value, "GPU 3 (a)", "165001") for value in (690.0, 685.0, 688.0)])
NOW = (Part(where="GPU 5 (a)", name="NVIDIA H200", serial="165001"),)


def test_a_board_that_fades_is_named_by_its_serial_number() -> None:
    judged = with_past(result(640.0, "GPU 5 (a)"), NOW, PAST)
    assert judged.verdict is Verdict.WARN and judged.remedy
    assert judged.reason.startswith("GPU 5 (a), serial 165001: bf16 GEMM 7.0% below its own 688 TFLOP/s in 3 earlier")


@pytest.mark.parametrize(
    ("now", "parts"),
    [
        (result(684.0, "GPU 5 (a)"), NOW),
        (result(640.0, "GPU 5 (a)", unit="deg C"), NOW),
        (result(640.0, "GPU 5 (a)"), ()),
        (result(640.0, "GPU 5 (a)"), (Part(where="GPU 5 (a)", name="NVIDIA H200", serial="other"),)),
    ],
)
def test_what_is_as_ever_or_new_or_no_rate_is_left_alone(now: CheckResult, parts: tuple[Part, ...]) -> None:
    assert with_past(now, parts, PAST) == now


def test_two_earlier_acceptances_say_nothing() -> None:
    past = past_of([accepted(value, "GPU 3 (a)", "165001") for value in (690.0, 685.0)])
    assert with_past(result(640.0, "GPU 5 (a)"), NOW, past).verdict is Verdict.PASS


def test_a_failure_stays_one() -> None:
    failed = result(640.0, "GPU 5 (a)").model_copy(update={"verdict": Verdict.FAIL, "reason": "too slow"})
    judged = with_past(failed, NOW, PAST)
    assert judged.verdict is Verdict.FAIL and judged.reason.startswith("too slow; GPU 5")


def test_the_past_is_read_from_files_of_both_versions(tmp_path: Path) -> None:
    for index in range(3):
        directory = tmp_path / str(index)
        directory.mkdir()
        write_json(directory / "acceptance.json", accepted(700.0, "GPU 0 (b)", "9").model_dump(mode="json"))
    old = {"schema_version": 1, "verdict": "PASS", "checks": [], "provenance": {}, "seconds": 1.0}
    (tmp_path / "old").mkdir()
    write_json(tmp_path / "old" / "acceptance.json", old)
    assert read_past(tmp_path)["9", "gpu.gemm_bf16", "bf16 GEMM"] == [700.0] * 3
    assert read_acceptance(tmp_path / "old").schema_version == 1


def test_what_is_no_acceptance_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read_acceptance(tmp_path)
    (tmp_path / "acceptance.json").write_text("{}")
    with pytest.raises(UsageError, match=r"not an acceptance\.json"):
        read_acceptance(tmp_path)


def test_parts_carry_what_a_ticket_needs() -> None:
    parts = gpu_parts(DRIVER)
    assert parts[2].where == gpu_label(2, DRIVER.gpus[2].uuid)
    assert (parts[2].serial, parts[2].bus_id) == ("165002", "00000000:02:00.0")
