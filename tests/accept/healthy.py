"""Facts of healthy machines, by check: the ground that broken ones are made from."""

from seatrial.accept import nvml
from seatrial.accept.checks import (
    collectives,
    cpu,
    fabric,
    gpu,
    gpu_compute,
    gpu_link,
    gpu_memory,
    host,
    mounts,
    rdma,
    storage,
)
from seatrial.accept.checks.gpu_load import Gpu
from seatrial.accept.checks.ranks import StepFacts
from seatrial.accept.facts import Facts
from seatrial.accept.nccl_log import read_nccl_log
from seatrial.accept.training import rate, replay

MIB = 2**20
H200S = tuple(Gpu(index=i, name="NVIDIA H200", uuid=f"GPU-{i:08x}-0000-0000-0000-000000000000") for i in range(8))


def state(gpu: Gpu) -> nvml.GpuState:
    return nvml.GpuState(
        index=gpu.index,
        name=gpu.name,
        uuid=gpu.uuid,
        serial=f"16500{gpu.index}",
        bus_id=f"00000000:{gpu.index:02X}:00.0",
        mig=False,
        ecc=True,
        uncorrected_since_boot=0,
        uncorrected_ever=0,
        corrected_ever=3,
        rows_remapped_corrected=0,
        rows_remapped_uncorrected=0,
        row_remap_pending=False,
        row_remap_failed=False,
        processes=0,
        used_gib=0.01,
        temperature_c=31,
        power_limit_w=700.0,
    )


DRIVER = nvml.DriverState(driver="580.159.04", gpus=tuple(map(state, H200S)), silent={})
UNDER_LOAD = nvml.UnderLoad(
    sm_clock_mhz=(1755, 1740, 1725, 1725, 1725, 1710),
    power_w=(690.0, 698.0, 699.0, 697.0, 698.0, 699.0),
    temperature_c=(55, 58, 61, 62, 63, 63),
    clock_reasons=(0x4, 0x4, 0x4, 0x4, 0x4, 0x4),
    pcie_generation=(5, 5, 5, 5, 5, 5),
    pcie_width=(16, 16, 16, 16, 16, 16),
    xids=(),
)
GIB_4 = 4 * 2**30
NCCL_LOG = f"""\
node-1:2211:2298 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
node-1:2211:2211 [0] NCCL INFO AllReduce: {GIB_4} Bytes -> Algo RING proto SIMPLE channel{{Lo..Hi}}={{0..23}}
"""


def steps(ranks: int, busbw_gb_per_s: float) -> tuple[StepFacts, ...]:
    """Timings that yield this bus bandwidth at 4 GiB."""
    seconds = GIB_4 / (busbw_gb_per_s * 1e9) * 2 * (ranks - 1) / ranks
    return (
        StepFacts(collective="all_reduce", size_bytes=8, seconds=(2e-5,) * 20, wrong=0),
        StepFacts(collective="all_gather", size_bytes=MIB, seconds=(4e-5,) * 20, wrong=0),
        StepFacts(collective="all_reduce", size_bytes=GIB_4, seconds=(seconds,) * 5, wrong=0),
    )


PORTS = tuple(
    rdma.Port(
        device=f"mlx5_{index}",
        port=1,
        layer="InfiniBand",
        state="4: ACTIVE",
        physical="5: LinkUp",
        rate_gbit=400.0,
    )
    for index in range(8)
)
COUNTERS = {port.name: {"link_downed": 1, "symbol_error": 4} for port in PORTS}
RUN = replay.Run(sha256="54384c19", losses=(6.114, 5.255, 4.202), broken="")
HEALTHY: dict[str, Facts] = {
    "host.cpu": host.CpuFacts(model="EPYC", usable_cores=8, machine_cores=8, numa_nodes=1, quota_cores=None),
    "host.memory": host.MemoryFacts(total_gib=64.0, available_gib=60.0, swap_gib=0.0, limit_gib=None),
    "host.limits": host.LimitsFacts(open_files=1048576, memlock_gib=None, shm_gib=32.0, rdma_devices=8, gpus=8),
    "host.clock": host.ClockFacts(source="tsc", steps_ns=(60, 60, 70, 60, 80, 60)),
    "host.system": host.SystemFacts(kernel="6.8.0-31-generic", distribution="D", glibc="glibc 2.36", container=False),
    "host.memory_bandwidth": cpu.MemoryBandwidthFacts(
        cores=2,
        others_share=0.01,
        array_bytes=128 * MIB,
        cache_bytes=32 * MIB,
        copy_gb_per_s=(37.4, 37.5, 36.9, 37.1, 37.4),
        triad_gb_per_s=(39.4, 39.2, 39.3, 39.0, 39.4),
    ),
    "host.gemm": cpu.GemmFacts(
        cores=2,
        others_share=0.01,
        isa="avx512f",
        fp32_gflop_per_s=(199.0, 201.0, 200.0, 198.0, 200.0),
        fp32_wrong=0,
        bf16_gflop_per_s=(430.0, 440.0, 436.0, 437.0, 436.0),
        bf16_wrong=0,
    ),
    "host.same_bits": cpu.DigestFacts(tallies={0: {7: 5}, 1: {7: 5}}),
    "gpu.inventory": gpu.InventoryFacts(
        state=DRIVER, driver_error="", expected=8, torch_gpus=8, torch_version="2.11.0+cu130", visible=None
    ),
    "gpu.idle": gpu.StateFacts(state=DRIVER),
    "gpu.pcie": gpu_link.PcieFacts(
        gpus=tuple(
            gpu_link.PcieGpu(
                gpu=one,
                maximum=nvml.PcieMaximum(generation=5, width=16),
                host_to_device_gb_per_s=(55.4, 55.3, 55.4, 55.4, 55.5),
                device_to_host_gb_per_s=(55.0, 55.1, 55.0, 55.1, 55.0),
                load=UNDER_LOAD,
            )
            for one in H200S
        )
    ),
    "gpu.memory_bandwidth": gpu_memory.CopyFacts(
        gpus=tuple(gpu_memory.CopyGpu(gpu=one, gb_per_s=(4300.0, 4290.0, 4310.0, 4300.0, 4300.0)) for one in H200S)
    ),
    "gpu.memory_patterns": gpu_memory.PatternFacts(
        gpus=tuple(gpu_memory.PatternGpu(gpu=one, tested_gib=125.0, free_gib=139.0, wrong=0) for one in H200S)
    ),
    "gpu.gemm_bf16": gpu_compute.GpuGemmFacts(
        dtype="bf16",
        unsupported="",
        gpus=tuple(
            gpu_compute.GemmGpu(gpu=one, tflop_per_s=(682.0, 679.0, 681.0, 680.0, 678.0), wrong=0, load=UNDER_LOAD)
            for one in H200S
        ),
    ),
    "gpu.gemm_fp8": gpu_compute.GpuGemmFacts(
        dtype="fp8",
        unsupported="",
        gpus=tuple(
            gpu_compute.GemmGpu(gpu=one, tflop_per_s=(1350.0, 1345.0, 1352.0, 1349.0, 1350.0), wrong=0, load=UNDER_LOAD)
            for one in H200S
        ),
    ),
    "gpu.same_bits": gpu_compute.GpuDigestFacts(gpus=H200S, tallies={one.index: {9: 5} for one in H200S}),
    "gpu.memory_health": gpu.StateFacts(state=DRIVER),
    "gpu.kernel_log": gpu.KernelLogFacts(xids=(), reason=""),
    "fabric.rdma": rdma.PortsFacts(ports=PORTS),
    "fabric.nvlink": fabric.NvlinkFacts(gpus=tuple(fabric.NvlinkGpu(gpu=one, active=18) for one in H200S)),
    "fabric.peer": fabric.PeerFacts(
        pairs=tuple(
            fabric.PeerPair(source=a, target=b, direct=True, gb_per_s=(396.0, 396.4, 395.9, 396.1, 396.0))
            for a in H200S
            for b in H200S
            if a != b
        )
    ),
    "collectives.loopback": collectives.RanksFacts(
        backend="gloo",
        ranks=2,
        gpu_names=(),
        steps=(StepFacts(collective="all_reduce", size_bytes=16 * MIB, seconds=(0.012,) * 5, wrong=0),),
        choice=read_nccl_log(""),
    ),
    "collectives.nccl": collectives.RanksFacts(
        backend="nccl",
        ranks=8,
        gpu_names=tuple(one.name for one in H200S),
        steps=steps(8, 366.2),
        choice=read_nccl_log(NCCL_LOG),
    ),
    "fabric.rdma_errors": rdma.PortErrorsFacts(before=COUNTERS, after=COUNTERS),
    "storage.space": storage.SpaceFacts(directory="/scratch", total_gib=1000.0, free_gib=500.0, free_inodes=10**6),
    "storage.disk": storage.DiskFacts(
        directory="/scratch",
        file_bytes=64 * MIB,
        write_gb_per_s=(1.2, 1.1, 1.2, 1.3, 1.2),
        read_gb_per_s=(2.0, 2.1, 2.0, 2.0, 2.1),
        fsync_seconds=(0.0004, 0.0005, 0.0004, 0.0004, 0.0006),
        wrong_files=0,
    ),
    "storage.mounts": mounts.MountsFacts(
        mounts=(
            mounts.MountFacts(
                directory="/shared",
                error="",
                metadata_seconds=(0.002,) * 50,
                fsync_seconds=(0.004,) * 50,
                writer_gb_per_s=(2.0, 2.1, 2.0, 1.9, 2.0),
                checkpoint_gb_per_s=(1.0, 1.1, 1.0, 0.9, 1.0),
                wrong_files=0,
            ),
        )
    ),
    "training.replay": replay.ReplayFacts(
        ranks=tuple(replay.ReplayRank(gpu=one, alone=(RUN, RUN), together=RUN, error="") for one in H200S),
        compute="bfloat16",
        curve=(6.11, 5.25, 4.19),
    ),
    "training.rate": rate.RateFacts(
        workload=rate.Workload(
            shape="llama-3.1-8b", base="fp8", compute="bfloat16", rank=64, length=4096, rows=2, steps=6
        ),
        ranks=tuple(
            rate.RateRank(
                gpu=one,
                alone_seconds=(0.3672, 0.3675, 0.3671, 0.3672, 0.3674, 0.3672),
                own_seconds=0.373,
                ideal_seconds=0.2426,
                bf16_tflop_per_s=715.0,
                fp8_tflop_per_s=1340.0,
                attention=("flash-attn-4", "cudnn", "torch"),
                recomputed="none",
                peak_gib=53.2,
                error="",
            )
            for one in H200S
        ),
        together_seconds=(0.3777, 0.3776, 0.3778, 0.3777, 0.3779, 0.3776),
    ),
}
