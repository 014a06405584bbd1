"""Limits that every machine is judged by, with or without GPUs. CPU rates are floors per core."""

import math

from seatrial.accept.limits import Limit

MEMORY_BANDWIDTH_PER_CORE = Limit(
    name="memory bandwidth per core",
    unit="GB/s",
    reference=1.2,
    fail=0.6,
    bound=136.0,
    arithmetic="reference: 8 channels x 2400 MT/s x 8 B / 128 threads = 1.2 GB/s, the thinnest share among two-thread "
    "64-core servers; floor: half of it, because STREAM without streaming stores reaches about 60 % of the peak; "
    "bound: 128 cache lines in flight x 64 B / 60 ns = 136 GB/s, by Little's law",
    source="DDR4-2400 as in JEDEC JESD79-4; STREAM counting rules, J. McCalpin, cs.virginia.edu/stream/ref.html",
)


def _gemm_per_core(isa: str, flop_per_cycle: int) -> Limit:
    return Limit(
        name=f"fp32 GEMM per core ({isa})",
        unit="GFLOP/s",
        reference=flop_per_cycle / 2,
        fail=flop_per_cycle / 4,
        bound=flop_per_cycle * 6.5,
        arithmetic=f"{flop_per_cycle} fp32 FLOP per cycle and core; bound at 6.5 GHz, above any clock sold; reference "
        "at 1 GHz, under any base clock of a server, halved because two threads share a core; floor: half of that",
        source="instruction width x 2 FMA units x 2 FLOP, as in the Intel and AMD optimization manuals",
    )


GEMM_PER_CORE = {
    "avx512f": _gemm_per_core("avx512f", 64),
    "fma": _gemm_per_core("fma", 32),
    "sse2": _gemm_per_core("sse2", 16),
    "asimd": _gemm_per_core("asimd", 32),
}
"""By the widest instruction set among the CPU's flags, in this order."""

LOOPBACK_BUSBW = Limit(
    name="loopback all-reduce busbw",
    unit="GB/s",
    reference=0.25,
    fail=0.125,
    bound=136.0,
    arithmetic="floor: 1 Gb/s = 0.125 GB/s, since a path through memory that is slower than Gigabit Ethernet is "
    "broken; reference: 2 Gb/s; bound: one core moves no more than 136 GB/s (memory bandwidth per core)",
    source="IEEE 802.3ab for the line rate; busbw as in nccl-tests doc/PERFORMANCE.md",
)

STORAGE_WRITE = Limit(
    name="durable sequential write",
    unit="GB/s",
    reference=0.060,
    fail=0.030,
    bound=1000.0,
    arithmetic="reference: 60 MB/s, the slowest disk type that large clouds rent; floor: half of it, at which a "
    "4 GB checkpoint takes over two minutes; bound: more than memory takes, so the data was never written",
    source="Azure managed disk types, Standard HDD: up to 60 MB/s for S4 to S30",
)

FREE_DISK = Limit(
    name="free space",
    unit="GiB",
    reference=2.0,
    fail=1.0,
    warn=2.0,
    bound=math.inf,
    arithmetic="two checkpoints of a rank-16 adapter of an 8B model with its optimizer state: 42 M parameters x 12 B "
    "x 2 = 1.0 GB; the reference is twice that",
    source="own arithmetic; seatrial keeps the newest two checkpoints",
)

FREE_MEMORY = Limit(
    name="available memory",
    unit="GiB",
    reference=2.0,
    fail=1.0,
    warn=2.0,
    bound=math.inf,
    arithmetic="two ranks that import torch hold about 0.35 GiB each and the memory test 0.4 GiB: 1.1 GiB",
    source="own measurement of resident memory, torch 2.13 on Linux x86-64",
)

SHARED_MEMORY = Limit(
    name="/dev/shm size",
    unit="GiB",
    reference=1.0,
    fail=1.0,
    bound=math.inf,
    arithmetic="1 GiB for NCCL's shared-memory transport and for data-loader workers; Docker's default is 0.0625",
    source="NCCL user guide, Troubleshooting, Shared Memory: --shm-size=1g",
)

OPEN_FILES = Limit(
    name="open files (hard limit)",
    unit="files",
    reference=4096,
    warn=4096,
    fail=2048,
    bound=math.inf,
    arithmetic="a rank holds a few files for each peer it talks to; under the kernel's default of 4096 somebody "
    "lowered it, under half of that 512 peers with 4 files each do not fit",
    source="Linux include/uapi/linux/fs.h: INR_OPEN_MAX 4096",
)

CPU_LIMITS = (
    MEMORY_BANDWIDTH_PER_CORE,
    *GEMM_PER_CORE.values(),
    LOOPBACK_BUSBW,
    STORAGE_WRITE,
    FREE_DISK,
    FREE_MEMORY,
    SHARED_MEMORY,
    OPEN_FILES,
)
