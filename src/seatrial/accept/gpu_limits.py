"""Limits of NVIDIA GPUs: physical bounds computed from the chip, references from published measurements.

Bounds: matrix rate = SMs x FLOP per clock and SM x highest clock; memory = bus width x data rate; links as specified.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from seatrial.accept.limits import FAIL_SHARE, WARN_SHARE, Limit, Limits

MAMF = "stas00/ml-engineering, compute/accelerator (MAMF)"
NETWORK = "stas00/ml-engineering, network (all_reduce_bench, nvbandwidth)"
AZNHC = "Azure/azurehpc-health-checks, nd96*_v4 and _v5 configurations"


@dataclass(frozen=True, kw_only=True)
class GpuKind:
    """What the chip is. ``pattern`` matches the whole name that the driver gives; dense rates, no sparsity."""

    name: str
    pattern: str
    sms: int
    bf16_flop_per_clock: int
    fp8_flop_per_clock: int | None
    highest_clock_ghz: float
    memory_bus_bits: int
    memory_gbit_per_pin: float
    nvlinks: int
    nvlink_gb_per_s: float

    @property
    def memory_gb_per_s(self) -> float:
        return self.memory_bus_bits * self.memory_gbit_per_pin / 8

    @property
    def nvlink_total_gb_per_s(self) -> float:
        """One direction, all links."""
        return self.nvlinks * self.nvlink_gb_per_s

    def bf16_tflop_per_s(self) -> float:
        return self.sms * self.bf16_flop_per_clock * self.highest_clock_ghz / 1000

    def fp8_tflop_per_s(self) -> float | None:
        return (
            None
            if self.fp8_flop_per_clock is None
            else self.sms * self.fp8_flop_per_clock * self.highest_clock_ghz / 1000
        )


H100 = GpuKind(
    name="H100 SXM",
    pattern=r"NVIDIA H100( SXM5)?( 80GB)? HBM3",
    sms=132,
    bf16_flop_per_clock=4096,
    fp8_flop_per_clock=8192,
    highest_clock_ghz=1.98,
    memory_bus_bits=5120,
    memory_gbit_per_pin=5.238,
    nvlinks=18,
    nvlink_gb_per_s=25,
)
H200 = GpuKind(
    name="H200 SXM",
    pattern=r"NVIDIA H200( SXM)?",
    sms=132,
    bf16_flop_per_clock=4096,
    fp8_flop_per_clock=8192,
    highest_clock_ghz=1.98,
    memory_bus_bits=6144,
    memory_gbit_per_pin=6.402,
    nvlinks=18,
    nvlink_gb_per_s=25,
)
A100 = GpuKind(
    name="A100 SXM 80GB",
    pattern=r"(NVIDIA )?A100-SXM(4)?-80GB",
    sms=108,
    bf16_flop_per_clock=2048,
    fp8_flop_per_clock=None,
    highest_clock_ghz=1.41,
    memory_bus_bits=5120,
    memory_gbit_per_pin=3.186,
    nvlinks=12,
    nvlink_gb_per_s=25,
)
B200 = GpuKind(
    name="B200 SXM",
    pattern=r"NVIDIA B200",
    sms=148,
    bf16_flop_per_clock=8192,
    fp8_flop_per_clock=16384,
    highest_clock_ghz=1.965,
    memory_bus_bits=8192,
    memory_gbit_per_pin=8.0,
    nvlinks=18,
    nvlink_gb_per_s=50,
)
KINDS = (H100, H200, A100, B200)


def kind_of(name: str) -> GpuKind | None:
    """The kind whose driver name this is; None for one without limits."""
    return next((kind for kind in KINDS if re.fullmatch(kind.pattern, name.strip())), None)


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


def _fp8(kind: GpuKind, reference: float, source: str) -> Limit:
    bound, flop = kind.fp8_tflop_per_s(), kind.fp8_flop_per_clock
    assert bound is not None and flop is not None
    return _gemm(kind, "fp8", bound, flop, reference, PROVISIONAL_SHARE, source)


HOPPER_GEMM = (
    "results/accept_h100_2026-11-21.md: normal random data for 35 s at 700 W; huggingface/gpu-fryer publishes 730 on "
    "uniform data of one sign, which toggle fewer bits: the same GPU did 732 on such"
)
BF16_GEMM = {
    H100: _bf16(H100, 678, FAIL_SHARE, HOPPER_GEMM),
    H200: _bf16(H200, 678, FAIL_SHARE, f"as H100, the same chip and power limit; {HOPPER_GEMM}"),
    A100: _bf16(A100, 261.2, FAIL_SHARE, "microsoft/superbench-results, NDm A100 v4 baseline, bf16 tensor cores"),
    B200: _bf16(B200, 1745, PROVISIONAL_SHARE, MAMF),
}
FP8_GEMM = {
    H100: _fp8(H100, 1402.6, MAMF),
    H200: _fp8(H200, 1402.6, f"as H100 ({MAMF})"),
    B200: _fp8(B200, 3432.5, MAMF),
}


def _memory(kind: GpuKind, reference: float, source: str) -> Limit:
    bound = kind.memory_gb_per_s
    formula = (
        f"bytes read plus bytes written; bound: {kind.memory_bus_bits} bit x {kind.memory_gbit_per_pin:g} Gbit/s per "
        f"pin / 8 = {bound:.0f} GB/s"
    )
    return _rate(f"memory copy on {kind.name}", "GB/s", bound, formula, reference, source)


MEMORY_COPY = {
    H100: _memory(H100, 2903, "Voltage Park, vpbenchmarking, device-to-device copy on H100 SXM"),
    H200: _memory(H200, 4160, "H100's share of its peak, 86.7 %, of the 4,800 GB/s of NVIDIA's H200 data sheet"),
    A100: _memory(A100, 1581, "NVIDIA/DCGM nvvs/diag-skus, comments on A100 SXM memory diagnostics"),
    B200: _memory(B200, 5430, "NVIDIA/DCGM nvvs/diag-skus, dcgmproftester 1005 on B200"),
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
}

LARGE_MESSAGE_BYTES = 4 * 2**30
"""From this size on, published all-reduce bandwidths are flat to within 2 %, so one reference serves."""


def _all_reduce(kind: GpuKind, ranks: int, algorithm: str, reference: float, source: str) -> Limit:
    link = kind.nvlink_total_gb_per_s
    if algorithm == "RING":
        bound, formula = link, f"bound: a ring moves busbw over each GPU's links: {link:g} GB/s"
    else:
        # A GPU sends its whole buffer to the switch once and its reduced share back: S (1 + 1/n) bytes over its links.
        bound = link / (1 + 1 / ranks) * 2 * (ranks - 1) / ranks
        formula = f"bound: {link:g} GB/s / (1 + 1/{ranks}) x 2 ({ranks} - 1) / {ranks}, as the switch reduces"
    name = f"all-reduce busbw by {algorithm}, {ranks} x {kind.name}"
    return _rate(name, "GB/s", bound, f"messages from 4 GiB; {formula} = {bound:.0f}", reference, source)


ALL_REDUCE = {
    (kind, ranks, algorithm): _all_reduce(kind, ranks, algorithm, reference, source)
    for kind, ranks, algorithm, reference, source in (
        (H100, 8, "NVLS", 475.0, "NVIDIA/nccl-tests issues 212 and 290: about 480"),
        (H100, 8, "RING", 366.0, f"as H200; NVIDIA/nccl-tests issue 212: about 370; {NETWORK}"),
        (H200, 8, "NVLS", 473.0, f"{NETWORK}, 8 GiB"),
        (H200, 7, "NVLS", 460.0, NETWORK),
        (H200, 6, "NVLS", 436.0, NETWORK),
        (H200, 5, "NVLS", 414.0, NETWORK),
        (H200, 8, "RING", 366.0, f"{NETWORK}, NCCL_NVLS_ENABLE=0: 365.6 to 367.6"),
        (H200, 4, "RING", 363.0, NETWORK),
        (A100, 8, "RING", 234.9, f"{NETWORK}, 16 GiB"),
        (B200, 8, "NVLS", 838.0, f"{NETWORK}, 8 GiB"),
        (B200, 8, "RING", 682.0, NETWORK),
    )
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
    *ALL_REDUCE.values(),
)
