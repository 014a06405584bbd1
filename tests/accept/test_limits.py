"""Limits can fail, ask for less than physics allows, and the lint refuses those of other tools that do not."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from seatrial.accept import busbw, catalogue, cpu_limits, gpu_kinds, gpu_limits, limits
from seatrial.accept.catalogue import LADDER
from seatrial.accept.limits import Limit, lint
from seatrial.accept.training.limits import TRAINING_LIMITS
from seatrial.errors import SettingsError
from seatrial.records import Verdict

EVERY = (
    *cpu_limits.CPU_LIMITS,
    *gpu_limits.GPU_LIMITS,
    *busbw.built_in_limits(gpu_kinds.KINDS),
    *TRAINING_LIMITS,
)


def test_the_lint_finds_nothing() -> None:
    assert lint(EVERY) == []


def test_every_limit_belongs_to_a_check_of_the_ladder() -> None:
    assert {limit.name for check in LADDER for limit in check.limits} == {limit.name for limit in EVERY}


@pytest.mark.parametrize("limit", EVERY, ids=lambda limit: limit.name)
def test_a_limit_can_fail_and_a_healthy_part_passes(limit: Limit) -> None:
    assert limit.fail is not None and limit.reference is not None
    assert limit.judge(limit.fail * 0.999, "x")[0] is Verdict.FAIL
    assert limit.judge(limit.reference, "x")[0] is Verdict.PASS
    if limit.warn is not None and limit.warn > limit.fail:
        assert limit.judge((limit.warn + limit.fail) / 2, "x")[0] is Verdict.WARN


@pytest.mark.parametrize("limit", EVERY, ids=lambda limit: limit.name)
def test_what_cannot_be_measured_is_inconclusive(limit: Limit) -> None:
    beyond = [limit.bound * 1.001] if math.isfinite(limit.bound) else []
    for value in (math.nan, math.inf, 0.0, -1.0, *beyond):
        assert limit.judge(value, "x")[0] is Verdict.INCONCLUSIVE


def test_without_a_floor_a_number_is_recorded() -> None:
    recorded = Limit(name="n", unit="GB/s", bound=10.0, arithmetic="a", source="s")
    assert recorded.judge(5.0, "x")[0] is Verdict.SKIPPED
    assert recorded.judge(11.0, "x")[0] is Verdict.INCONCLUSIVE
    assert lint([recorded]) == []


H200_MEMORY = gpu_limits.MEMORY_COPY[gpu_kinds.H200]


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        (replace(H200_MEMORY, fail=2.333, warn=None), "under half the reference"),  # MB/s taken for GB/s
        (replace(H200_MEMORY, fail=5000.0, warn=5000.0, reference=5200.0), "above the bound"),
        (replace(H200_MEMORY, fail=4400.0, warn=4400.0), "demands more than the reference"),
        (replace(H200_MEMORY, warn=1.0), "demands more than the reference"),
        (replace(H200_MEMORY, source=" "), "no source"),
        (replace(H200_MEMORY, arithmetic=""), "no source or no arithmetic"),
        (replace(H200_MEMORY, bound=math.inf), "without a physical bound"),
        (replace(H200_MEMORY, reference=None), "without a reference"),
        (replace(H200_MEMORY, fail=None), "without a floor"),
    ],
)
def test_the_lint_refuses(wrong: Limit, complaint: str) -> None:
    assert any(complaint in problem for problem in lint([wrong]))


def test_bounds_agree_with_the_data_sheets() -> None:
    """Dense rates at the boost clock of NVIDIA's data sheets, scaled to the highest clock."""
    assert gpu_kinds.H100.bf16_tflop_per_s() == pytest.approx(989.4 * 1.98 / 1.83, rel=0.001)
    assert gpu_kinds.A100.bf16_tflop_per_s() == pytest.approx(312, rel=0.001)
    assert gpu_kinds.H100.fp8_tflop_per_s() == pytest.approx(1978.9 * 1.98 / 1.83, rel=0.001)
    assert gpu_kinds.A100.fp8_tflop_per_s() is None
    assert gpu_kinds.H100.memory_gb_per_s == pytest.approx(3352, rel=0.001)
    assert gpu_kinds.H200.memory_gb_per_s == pytest.approx(4917, rel=0.001)
    assert gpu_kinds.A100.memory_gb_per_s == pytest.approx(2039, rel=0.001)
    assert gpu_kinds.L40S.bf16_tflop_per_s() == pytest.approx(362.05 * 2.52 / 2.49, rel=0.001)
    assert gpu_kinds.L40S.memory_gb_per_s == 864
    assert gpu_kinds.H100_NVL.memory_gb_per_s == pytest.approx(3938, rel=0.001)
    assert gpu_kinds.A100_PCIE.memory_gb_per_s == pytest.approx(1935, rel=0.001)
    assert gpu_kinds.H200.nvlink_total_gb_per_s == 450
    assert gpu_limits.pcie_gb_per_s(5, 16) == pytest.approx(63.0, rel=0.001)
    assert gpu_limits.pcie_gb_per_s(4, 16) == pytest.approx(31.5, rel=0.001)
    assert gpu_limits.pcie_gb_per_s(1, 16) == pytest.approx(4.0)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA H100 80GB HBM3", gpu_kinds.H100),
        ("NVIDIA H200", gpu_kinds.H200),
        ("NVIDIA A100-SXM4-80GB", gpu_kinds.A100),
        ("NVIDIA B200", gpu_kinds.B200),
        ("NVIDIA H100 PCIe", gpu_kinds.H100_PCIE),
        ("NVIDIA H100 NVL", gpu_kinds.H100_NVL),
        ("NVIDIA H200 NVL", gpu_kinds.H200_NVL),
        ("NVIDIA A100 80GB PCIe", gpu_kinds.A100_PCIE),
        ("NVIDIA L40S", gpu_kinds.L40S),
        ("NVIDIA L40", None),
        ("NVIDIA A100-SXM4-40GB", None),
        ("NVIDIA GeForce RTX 4090", None),
        ("", None),
    ],
)
def test_only_the_same_part_has_the_limits(name: str, kind: gpu_kinds.GpuKind | None) -> None:
    assert gpu_kinds.kind_of(name) is kind


def own_limits(tmp_path: Path, text: str) -> limits.Limits:
    path = tmp_path / "own.yaml"
    path.write_text(text)
    return limits.read_own_limits(path, catalogue.LIMITS)


def test_own_limits_replace_the_built_in_ones_and_add_those_of_unknown_parts(tmp_path: Path) -> None:
    own = own_limits(
        tmp_path,
        """
limits:
  bf16 GEMM on H100 SXM: {fail: 740, warn: 760, source: "contract, annex B"}
  memory copy on NVIDIA L4: {fail: 200, source: own node, unit: GB/s, bound: 300}
""",
    )
    contract = gpu_limits.limit_for(own, gpu_limits.BF16_GEMM, "bf16 GEMM", "NVIDIA H100 80GB HBM3")
    assert contract is not None
    assert contract.judge(735.0, "x")[0] is Verdict.FAIL
    assert contract.judge(750.0, "x")[0] is Verdict.WARN
    assert contract.bound == gpu_limits.BF16_GEMM[gpu_kinds.H100].bound
    assert contract.source == "contract, annex B"
    unknown = gpu_limits.limit_for(own, gpu_limits.MEMORY_COPY, "memory copy", "NVIDIA L4")
    assert unknown is not None and unknown.judge(190.0, "x")[0] is Verdict.FAIL
    assert gpu_limits.limit_for(own, gpu_limits.MEMORY_COPY, "memory copy", "NVIDIA T4") is None
    assert gpu_limits.limit_for(own, gpu_limits.MEMORY_COPY, "memory copy", "NVIDIA H200") is H200_MEMORY


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("limits:\n  bf16 GEMM on H100 SXM: {fail: 2000, source: a blog}\n", "above the bound"),
        ("limits:\n  bf16 GEMM on H100 SXM: {fail: 1, reference: 700, source: slip}\n", "under half the reference"),
        ("limits:\n  bf16 GEMM on H100 SXM: {fail: 700, source: ''}\n", "no source"),
        ("limits:\n  bf16 GEMM on H100 SXM: {fail: 700}\n", "source is required"),
        ("limits:\n  frobnication: {fail: 700, source: me}\n", "needs unit and bound"),
        ("limits:\n  bf16 GEMM on H100 SXM: {fial: 700, source: me}\n", "unknown key"),
    ],
)
def test_own_limits_that_cannot_be_used_are_refused(tmp_path: Path, text: str, complaint: str) -> None:
    with pytest.raises(SettingsError, match=complaint):
        own_limits(tmp_path, text)
