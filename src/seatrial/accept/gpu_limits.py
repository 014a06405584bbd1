"""Limits of single NVIDIA GPUs and their links: bounds computed from the chip, references published or measured.

Where nobody published what a board sustains, the reference is computed from one that was measured, and says so.
"""

from collections.abc import Mapping

from seatrial.accept.gpu_kinds import (
    A100,
    A100_PCIE,
    B200,
    H100,
    H100_NVL,
    H100_PCIE,
    H200,
    H200_NVL,
    L40S,
    GpuKind,
    kind_of,
)
from seatrial.accept.limits import FAIL_SHARE, WARN_SHARE, Limit, Limits

MAMF = "stas00/ml-engineering, compute/accelerator (MAMF)"
NETWORK = "stas00/ml-engineering, network (all_reduce_bench, nvbandwidth)"
AZNHC = "Azure/azurehpc-health-checks, nd96*_v4 and _v5 configurations"


def _rate(
    name: str, unit: str, bound: float, formula: str, reference: float, source: str, fail_share: float = FAIL_SHARE
) -> Limit:
    """A floor that is a share of what was published; ``formula`` says where the bound comes from."""
    return Limit(
        name=name,
        unit=unit,
        reference=reference,
        warn=reference * WARN_SHARE if fail_share == FAIL_SHARE else None,
        fail=reference * fail_share,
        bound=bound,
        arithmetic=f"{formula}; reference {reference:g}, floor {fail_share:.0%} of it",
        source=source,
    )


def _gemm(
    kind: GpuKind, dtype: str, bound: float, flop_per_clock: int, reference: float, fail_share: float, source: str
) -> Limit:
    chip = f"{kind.sms} SMs x {flop_per_clock} FLOP per clock x {kind.highest_clock_ghz:g} GHz = {bound:.0f} TFLOP/s"
    name = f"{dtype} GEMM on {kind.name}"
    return _rate(name, "TFLOP/s", bound, f"bound: {chip}", reference, source, fail_share)


PROVISIONAL_SHARE = 0.80
"""Where the published value is the best of many shapes in a short burst: at the power limit a GPU sustains less."""


def _bf16(kind: GpuKind, reference: float, fail_share: float, source: str) -> Limit:
    return _gemm(kind, "bf16", kind.bf16_tflop_per_s(), kind.bf16_flop_per_clock, reference, fail_share, source)


def _bf16_by_power(kind: GpuKind, measured: GpuKind, tflop_per_s: float, source: str) -> Limit:
    """A board with less power runs slower clocks at lower voltage, so it does at least as many FLOP per joule."""
    reference = tflop_per_s * kind.power_w / measured.power_w
    how = f"computed: {tflop_per_s:g} TFLOP/s of {measured.name} x {kind.power_w} W / {measured.power_w} W"
    return _bf16(kind, reference, FAIL_SHARE, f"{how} ({source})")


def _fp8(kind: GpuKind, reference: float, source: str) -> Limit:
    bound, flop = kind.fp8_tflop_per_s(), kind.fp8_flop_per_clock
    assert bound is not None and flop is not None
    return _gemm(kind, "fp8", bound, flop, reference, PROVISIONAL_SHARE, source)


HOPPER_GEMM = (
    "results/accept_h100_2026-11-21.md: normal random data for 35 s at 700 W; huggingface/gpu-fryer publishes 730 on "
    "uniform data of one sign, which toggle fewer bits: the same GPU did 732 on such"
)
A100_GEMM = "microsoft/superbench-results, NDm A100 v4 baseline, bf16 tensor cores"
FP8_BY_POWER = "computed as for bf16, from 1302 TFLOP/s of an H100 SXM at 700 W, own measurement of 3 s"
LEAST_SHARE = 0.63
"""678 TFLOP/s of the 1,071 that an H100 SXM would do at its highest clock: power holds it back more than any other."""
BF16_GEMM = {
    H100: _bf16(H100, 678, FAIL_SHARE, HOPPER_GEMM),
    H200: _bf16(H200, 678, FAIL_SHARE, f"as H100, the same chip and power limit; {HOPPER_GEMM}"),
    A100: _bf16(A100, 261.2, FAIL_SHARE, A100_GEMM),
    B200: _bf16(B200, 1745, PROVISIONAL_SHARE, MAMF),
    H100_PCIE: _bf16_by_power(H100_PCIE, H100, 678, HOPPER_GEMM),
    H100_NVL: _bf16_by_power(H100_NVL, H100, 678, HOPPER_GEMM),
    H200_NVL: _bf16_by_power(H200_NVL, H100, 678, HOPPER_GEMM),
    A100_PCIE: _bf16_by_power(A100_PCIE, A100, 261.2, A100_GEMM),
    L40S: _bf16(
        L40S,
        LEAST_SHARE * L40S.bf16_tflop_per_s(),
        PROVISIONAL_SHARE,
        f"computed: {LEAST_SHARE:.0%} of the bound, "
        f"the least share that any kind here sustains (H100 SXM: {HOPPER_GEMM})",
    ),
}
FP8_GEMM = {
    H100: _fp8(H100, 1402.6, MAMF),
    H200: _fp8(H200, 1402.6, f"as H100 ({MAMF})"),
    B200: _fp8(B200, 3432.5, MAMF),
    **{kind: _fp8(kind, 1302 * kind.power_w / H100.power_w, FP8_BY_POWER) for kind in (H100_PCIE, H100_NVL, H200_NVL)},
    L40S: _fp8(L40S, LEAST_SHARE * (L40S.fp8_tflop_per_s() or 0), "computed as for bf16"),
}


def _memory(kind: GpuKind, reference: float, source: str, fail_share: float = FAIL_SHARE) -> Limit:
    bound = kind.memory_gb_per_s
    formula = (
        f"bytes read plus bytes written; bound: {kind.memory_bus_bits} bit x {kind.memory_gbit_per_pin:g} Gbit/s per "
        f"pin / 8 = {bound:.0f} GB/s"
    )
    return _rate(f"memory copy on {kind.name}", "GB/s", bound, formula, reference, source, fail_share)


COPY_SHARE = 0.80
"""Of the bus: healthy boards copy at 77 % (A100) to 90 % (H100) of it."""


def _computed_copy(kind: GpuKind) -> Limit:
    source = f"computed: {COPY_SHARE:.0%} of the bus, as boards that were measured reach"
    return _memory(kind, COPY_SHARE * kind.memory_gb_per_s, source, PROVISIONAL_SHARE)


MEMORY_COPY = {
    H100: _memory(H100, 2903, "Voltage Park, vpbenchmarking, device-to-device copy on H100 SXM; own: 3,022"),
    H200: _memory(H200, 4300, "own measurement on 8 H200: 4,290 to 4,310, 87 % of the bus as on the H100"),
    A100: _memory(A100, 1581, "NVIDIA/DCGM nvvs/diag-skus, comments on A100 SXM memory diagnostics"),
    B200: _memory(B200, 5430, "NVIDIA/DCGM nvvs/diag-skus, dcgmproftester 1005 on B200"),
    **{kind: _computed_copy(kind) for kind in (H100_PCIE, H100_NVL, H200_NVL, A100_PCIE, L40S)},
}

PCIE_GT_PER_S = {1: 2.5, 2: 5.0, 3: 8.0, 4: 16.0, 5: 32.0, 6: 64.0}


def pcie_gb_per_s(generation: int, width: int) -> float:
    """One direction of a link after line coding: 8b/10b up to generation 2, 128b/130b after, none (PAM4) in 6."""
    coding = 8 / 10 if generation <= 2 else 128 / 130 if generation <= 5 else 1.0
    return PCIE_GT_PER_S[generation] * width * coding / 8


def _pcie(generation: int, direction: str, reference: float, fail: float, source: str) -> Limit:
    bound = pcie_gb_per_s(generation, 16)
    return Limit(
        name=f"{direction} over PCIe Gen{generation} x16",
        unit="GB/s",
        reference=reference,
        fail=fail,
        bound=bound,
        arithmetic=f"bound: {PCIE_GT_PER_S[generation]:g} GT/s x 16 lanes x 128/130 / 8 = {bound:.1f} GB/s; "
        f"reference {reference:g}, floor {fail:g}",
        source=source,
    )


HOST_TO_DEVICE = {
    (5, 16): _pcie(5, "host to device", 55.0, 48.0, f"reference: {NETWORK}; floor: {AZNHC}"),
    (4, 16): _pcie(4, "host to device", 26.0, 21.0, f"reference: NVIDIA/nvbandwidth README; floor: {AZNHC}"),
}
DEVICE_TO_HOST = {
    (5, 16): _pcie(5, "device to host", 46.8, 43.5, "Voltage Park, vpbenchmarking, the lowest published; floor 93 %"),
    (4, 16): _pcie(4, "device to host", 26.0, 21.0, f"reference: NVIDIA/nvbandwidth README; floor: {AZNHC}"),
}


def _peer(kind: GpuKind, reference: float, source: str) -> Limit:
    bound = kind.nvlink_total_gb_per_s
    formula = f"one direction; bound: {kind.nvlinks} links x {kind.nvlink_gb_per_s:g} GB/s = {bound:g} GB/s"
    return _rate(f"peer copy on {kind.name}", "GB/s", bound, formula, reference, source)


PEER_COPY = {
    H100: _peer(H100, 390, f"as H200, the same links; {NETWORK}"),
    H200: _peer(H200, 396.4, NETWORK),
    A100: _peer(A100, 274, NETWORK),
    B200: _peer(B200, 0.88 * B200.nvlink_total_gb_per_s, f"computed: 88 % of the links, as on the H200; {NETWORK}"),
}


def limit_for(limits: Limits, table: Mapping[GpuKind, Limit], what: str, gpu_name: str) -> Limit | None:
    """The limit of this kind of GPU, or the user's own for one that has none built in: ``WHAT on NAME``."""
    kind = kind_of(gpu_name)
    built_in = table.get(kind) if kind else None
    return limits.of(built_in) if built_in else limits.named(f"{what} on {gpu_name}")


GPU_LIMITS: tuple[Limit, ...] = (
    *BF16_GEMM.values(),
    *FP8_GEMM.values(),
    *MEMORY_COPY.values(),
    *HOST_TO_DEVICE.values(),
    *DEVICE_TO_HOST.values(),
    *PEER_COPY.values(),
)
