"""What NVIDIA's data-center GPUs are: the numbers of the chip and the board, from which physical bounds follow.

Bounds: matrix rate = SMs x FLOP per clock and SM x highest clock; memory = bus width x data rate; links as specified.
Sources: NVIDIA's data sheets and architecture papers of each part; highest clocks as the driver reports them. There is
no B200 with a PCIe plug; the L40S has no NVLink.
"""

import re
from dataclasses import dataclass

from seatrial.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class GpuKind:
    """What the board is. ``pattern`` matches the whole name that the driver gives; dense rates, no sparsity.

    ``bridged``: NVLinks are there only where somebody put a bridge over a pair of cards, so none is no fault.
    """

    name: str
    pattern: str
    sms: int
    bf16_flop_per_clock: int
    fp8_flop_per_clock: int | None
    highest_clock_ghz: float
    memory_bus_bits: int
    memory_gbit_per_pin: float
    power_w: int
    pcie_generation: int
    nvlinks: int
    nvlink_gb_per_s: float
    bridged: bool = False

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
        flop = self.fp8_flop_per_clock
        return None if flop is None else self.sms * flop * self.highest_clock_ghz / 1000


H100 = GpuKind(
    name="H100 SXM",
    pattern=r"NVIDIA H100( SXM5)?( 80GB)? HBM3",
    sms=132,
    bf16_flop_per_clock=4096,
    fp8_flop_per_clock=8192,
    highest_clock_ghz=1.98,
    memory_bus_bits=5120,
    memory_gbit_per_pin=5.238,
    power_w=700,
    pcie_generation=5,
    nvlinks=18,
    nvlink_gb_per_s=25,
)
H100_PCIE = GpuKind(
    name="H100 PCIe",
    pattern=r"NVIDIA H100 PCIe",
    sms=114,
    bf16_flop_per_clock=4096,
    fp8_flop_per_clock=8192,
    highest_clock_ghz=1.755,
    memory_bus_bits=5120,
    memory_gbit_per_pin=3.2,
    power_w=350,
    pcie_generation=5,
    nvlinks=12,
    nvlink_gb_per_s=25,
    bridged=True,
)
H100_NVL = GpuKind(
    name="H100 NVL",
    pattern=r"NVIDIA H100 NVL",
    sms=132,
    bf16_flop_per_clock=4096,
    fp8_flop_per_clock=8192,
    highest_clock_ghz=1.785,
    memory_bus_bits=6144,
    memory_gbit_per_pin=5.128,
    power_w=400,
    pcie_generation=5,
    nvlinks=12,
    nvlink_gb_per_s=25,
    bridged=True,
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
    power_w=700,
    pcie_generation=5,
    nvlinks=18,
    nvlink_gb_per_s=25,
)
H200_NVL = GpuKind(
    name="H200 NVL",
    pattern=r"NVIDIA H200 NVL",
    sms=132,
    bf16_flop_per_clock=4096,
    fp8_flop_per_clock=8192,
    highest_clock_ghz=1.785,
    memory_bus_bits=6144,
    memory_gbit_per_pin=6.402,
    power_w=600,
    pcie_generation=5,
    nvlinks=18,
    nvlink_gb_per_s=25,
    bridged=True,
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
    power_w=400,
    pcie_generation=4,
    nvlinks=12,
    nvlink_gb_per_s=25,
)
A100_PCIE = GpuKind(
    name="A100 PCIe 80GB",
    pattern=r"NVIDIA A100 80GB PCIe",
    sms=108,
    bf16_flop_per_clock=2048,
    fp8_flop_per_clock=None,
    highest_clock_ghz=1.41,
    memory_bus_bits=5120,
    memory_gbit_per_pin=3.024,
    power_w=300,
    pcie_generation=4,
    nvlinks=12,
    nvlink_gb_per_s=25,
    bridged=True,
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
    power_w=1000,
    pcie_generation=5,
    nvlinks=18,
    nvlink_gb_per_s=50,
)
L40S = GpuKind(
    name="L40S",
    pattern=r"NVIDIA L40S",
    sms=142,
    bf16_flop_per_clock=1024,
    fp8_flop_per_clock=2048,
    highest_clock_ghz=2.52,
    memory_bus_bits=384,
    memory_gbit_per_pin=18.0,
    power_w=350,
    pcie_generation=4,
    nvlinks=0,
    nvlink_gb_per_s=0,
)
KINDS = (H100, H200, A100, B200, H100_PCIE, H100_NVL, H200_NVL, A100_PCIE, L40S)


def kind_named(name: str) -> GpuKind:
    """A kind by our name or the driver's, in any case.

    Raises:
        UsageError: there is none.
    """
    for kind in KINDS:
        if name.lower() == kind.name.lower() or re.fullmatch(kind.pattern, name, re.IGNORECASE):
            return kind
    raise UsageError(f"--gpu {name}: no such kind; there are: {', '.join(kind.name for kind in KINDS)}")


def kind_of(name: str) -> GpuKind | None:
    """The kind whose driver name this is; None for one without limits."""
    return next((kind for kind in KINDS if re.fullmatch(kind.pattern, name.strip())), None)
