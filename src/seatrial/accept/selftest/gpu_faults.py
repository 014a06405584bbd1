"""Faults of GPUs and of what joins them: real where there are such GPUs, recordings of one elsewhere."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

from seatrial.accept.check import Judgement, Request
from seatrial.accept.checks.ranks import run_on_ranks
from seatrial.accept.gpu_kinds import GpuKind, kind_of
from seatrial.accept.inventory import take_inventory
from seatrial.accept.nccl_log import judge_transport, read_nccl_log
from seatrial.accept.runner import Worker
from seatrial.accept.selftest.injected import PROCESS, RECORDED, Caught, caught, environment, judged, recorded
from seatrial.records import Verdict


def lost_gpu(scratch: Path) -> Caught:
    facts = recorded("gpu.inventory")
    facts["state"]["gpus"] = []
    facts["state"]["silent"] = {"0": "GPU is lost"}
    facts["torch_gpus"] = 0
    return caught("lost GPU", judged("gpu.inventory", facts), RECORDED, "GPU 0 does not answer", "GPU is lost")


def ecc_events(scratch: Path) -> Caught:
    facts = recorded("gpu.memory_health")
    facts["state"]["gpus"][0] |= {"uncorrected_since_boot": 2, "row_remap_pending": True}
    return caught("ECC events", judged("gpu.memory_health", facts), RECORDED, "GPU 0", "2 uncorrected memory errors")


def degraded_pcie(scratch: Path) -> Caught:
    facts = recorded("gpu.pcie")
    (gpu,) = facts["gpus"]
    gpu["load"]["pcie_generation"] = [3 for _ in gpu["load"]["pcie_generation"]]
    for direction in ("host_to_device_gb_per_s", "device_to_host_gb_per_s"):
        gpu[direction] = [rate / 4.4 for rate in gpu[direction]]
    return caught("degraded PCIe", judged("gpu.pcie", facts), RECORDED, "GPU 0", "PCIe Gen3 x16 under load")


def xid_in_kernel_log(scratch: Path) -> Caught:
    facts = {"xids": [["0000:3b:00", 79]], "reason": ""}
    return caught("XID in the kernel log", judged("gpu.kernel_log", facts), RECORDED, "0000:3b:00", "fell off the bus")


def busy_gpu(scratch: Path) -> Caught:
    """Another job multiplies on the last GPU while all are measured."""
    name, check, gpus = "busy GPU", "gpu.gemm_bf16", len(_known_gpus())
    if not gpus:
        facts = recorded(check)
        (gpu,) = facts["gpus"]
        slowed = {**gpu, "gpu": {**gpu["gpu"], "index": 1}, "tflop_per_s": [rate / 2 for rate in gpu["tflop_per_s"]]}
        facts["gpus"] = [gpu, slowed]
        return caught(name, judged(check, facts), RECORDED, "GPU 1 (", innocent=("GPU 0 (",))
    culprit = gpus - 1
    with _kept_busy(culprit), Worker(scratch / "busy_gpu.log") as worker:
        answer = worker.ask(Request(check=check, seconds=3.0, directory=scratch), 120)
    others = tuple(f"GPU {index} (" for index in range(culprit))
    return caught(name, judged(check, answer.get("facts", {})), PROCESS, f"GPU {culprit} (", innocent=others)


def _known_gpus() -> tuple[GpuKind, ...]:
    """Of the GPUs to be tested, where limits are known for all: without, slow ones are shown, and no fault."""
    here = take_inventory()
    kinds = tuple(kind for name in here.listed[: here.gpus] if (kind := kind_of(name)) is not None)
    return kinds if len(kinds) == here.gpus else ()


@contextmanager
def _kept_busy(gpu: int) -> Iterator[None]:
    argv = [sys.executable, "-m", "seatrial.accept.selftest.busy_gpu", str(gpu)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as job:
        try:
            assert job.stdout is not None
            job.stdout.readline()  # it has begun, or ended at once
            yield
        finally:
            job.kill()


def forced_sockets(scratch: Path) -> Caught:
    """NCCL is forbidden to reach GPUs that NVLink joins by it, or through shared memory."""
    name, kinds = "forced sockets", _known_gpus()
    if len(kinds) > 1 and all(kind.nvlinks > 0 and not kind.bridged for kind in kinds):
        with environment(NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1"):
            _, choice = run_on_ranks("nccl", len(kinds), [("all_reduce", 2**20)], 1.0)
        findings = judge_transport(choice, nodes=1, linked=True, rdma_ports=0)
        verdict, text = findings[0] if findings else (Verdict.PASS, "nothing noticed")
        return caught(name, Judgement(verdict, text), PROCESS, "went by NET/Socket between GPUs that NVLink connects")
    log = files("seatrial").joinpath("assets/accept/nccl-sockets.log").read_text()
    verdict, text = judge_transport(read_nccl_log(log), nodes=2, linked=True, rdma_ports=8)[0]
    return caught(name, Judgement(verdict, text), RECORDED, "fell back to sockets", "8 RDMA port(s)")
