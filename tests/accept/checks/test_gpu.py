"""The GPU judges on what broken GPUs, drivers and links report."""

from collections.abc import Callable
from typing import Any

import pytest

from seatrial.accept.catalogue import find
from seatrial.accept.check import Judgement, judge_recorded
from seatrial.accept.checks import gpu
from seatrial.accept.limits import Limits
from seatrial.records import JsonObject, Verdict

from ..healthy import HEALTHY

Change = Callable[[Any], None]


def judged(check: str, change: Change) -> Judgement:
    facts: JsonObject = HEALTHY[check].model_dump(mode="json")
    change(facts)
    return judge_recorded(find(check), facts, Limits())


def state_of(index: int, **values: Any) -> Change:
    """Change what the driver says of one GPU."""
    return lambda facts: facts["state"]["gpus"][index].update(values)


def of(index: int, **values: Any) -> Change:
    """Change what was measured on one GPU."""
    return lambda facts: facts["gpus"][index].update(values)


def load_of(index: int, **values: Any) -> Change:
    return lambda facts: facts["gpus"][index]["load"].update(values)


def half_width(index: int) -> Change:
    """A link that came up with half of its lanes, and carries half."""

    def change(facts: Any) -> None:
        facts["gpus"][index]["load"]["pcie_width"] = [8] * 6
        facts["gpus"][index]["host_to_device_gb_per_s"] = [27.0] * 5
        facts["gpus"][index]["device_to_host_gb_per_s"] = [27.0] * 5

    return change


def lose_one(facts: Any) -> None:
    facts["state"]["gpus"].pop()


def silence_one(facts: Any) -> None:
    facts["state"]["gpus"].pop(3)
    facts["state"]["silent"] = {"3": "GPU is lost"}


def rename_all(name: str) -> Change:
    def change(facts: Any) -> None:
        for found in facts["gpus"]:
            found["gpu"]["name"] = name

    return change


def no_driver(facts: Any) -> None:
    facts.update(state=None, driver_error="Driver Not Loaded")


def no_gpus(facts: Any) -> None:
    facts["state"]["gpus"] = []


@pytest.mark.parametrize(
    ("check", "change", "verdict", "says"),
    [
        ("gpu.inventory", lose_one, Verdict.FAIL, "7 of 8 GPUs"),
        ("gpu.inventory", silence_one, Verdict.FAIL, "GPU 3 does not answer the driver: GPU is lost"),
        ("gpu.inventory", no_gpus, Verdict.FAIL, "0 of 8 GPUs"),
        ("gpu.inventory", lambda f: f.update(torch_gpus=0), Verdict.FAIL, "sees 0 of 8 GPUs: a CPU build"),
        ("gpu.inventory", lambda f: f.update(torch_gpus=1, visible="3"), Verdict.WARN, "the others go untested"),
        ("gpu.inventory", no_driver, Verdict.FAIL, "8 GPU(s) expected, no driver answers: Driver Not Loaded"),
        ("gpu.inventory", state_of(2, mig=True), Verdict.WARN, "split by MIG"),
        ("gpu.inventory", state_of(2, name="NVIDIA H100 80GB HBM3"), Verdict.WARN, "different kinds"),
        ("gpu.idle", state_of(1, processes=2), Verdict.INCONCLUSIVE, "GPU 1 (GPU-00000001): 2 process(es)"),
        ("gpu.idle", state_of(1, used_gib=40.0), Verdict.INCONCLUSIVE, "40.0 GiB in use and no process shown"),
        ("gpu.idle", state_of(1, used_gib=None, processes=None), Verdict.INCONCLUSIVE, "neither"),
        ("gpu.memory_health", state_of(5, uncorrected_since_boot=1), Verdict.FAIL, "GPU 5 (GPU-00000005): 1 uncorr"),
        ("gpu.memory_health", state_of(5, uncorrected_ever=4), Verdict.WARN, "4 uncorrected memory errors in its life"),
        ("gpu.memory_health", state_of(5, row_remap_pending=True), Verdict.FAIL, "waits for a reset"),
        ("gpu.memory_health", state_of(5, row_remap_failed=True), Verdict.FAIL, "must be replaced"),
        ("gpu.memory_health", state_of(5, rows_remapped_uncorrected=2), Verdict.WARN, "2 rows remapped"),
        ("gpu.memory_health", state_of(5, row_remap_failed=None), Verdict.INCONCLUSIVE, "does not tell of remapped"),
        ("gpu.memory_health", state_of(5, ecc=False), Verdict.FAIL, "ECC is off"),
        ("gpu.memory_health", state_of(5, ecc=None), Verdict.INCONCLUSIVE, "does not say"),
        ("gpu.memory_health", state_of(5, ecc=None, name="NVIDIA GeForce RTX 4090"), Verdict.WARN, "does not say"),
        ("gpu.memory_health", state_of(5, uncorrected_since_boot=None), Verdict.INCONCLUSIVE, "does not count"),
        ("gpu.memory_health", no_gpus, Verdict.INCONCLUSIVE, "nothing was measured"),
        ("gpu.pcie", half_width(6), Verdict.FAIL, "Gen5 x8 under load, but the GPU can do Gen5 x16"),
        ("gpu.pcie", half_width(6), Verdict.FAIL, "27 GB/s is below the floor of 48"),
        ("gpu.pcie", load_of(6, pcie_generation=[1, 3, 3]), Verdict.PASS, "Gen3 x16 is what a virtual bus shows"),
        ("gpu.pcie", load_of(6, pcie_generation=[], pcie_width=[]), Verdict.INCONCLUSIVE, "does not tell"),
        ("gpu.pcie", of(6, host_to_device_gb_per_s=[24.0] * 5), Verdict.FAIL, "24 GB/s is below the floor of 48"),
        ("gpu.pcie", of(6, host_to_device_gb_per_s=[70.0] * 5), Verdict.INCONCLUSIVE, "physical bound"),
        ("gpu.pcie", rename_all("NVIDIA GeForce RTX 4090"), Verdict.PASS, "55.4 to 55.4 GB/s"),
        ("gpu.memory_bandwidth", of(0, gb_per_s=[3500.0] * 5), Verdict.FAIL, "GPU 0 (GPU-00000000)"),
        ("gpu.memory_bandwidth", of(0, gb_per_s=[9600.0] * 5), Verdict.INCONCLUSIVE, "physical bound of 4917"),
        ("gpu.memory_bandwidth", of(0, gb_per_s=[4300.0] * 3), Verdict.INCONCLUSIVE, "3 samples"),
        ("gpu.memory_bandwidth", rename_all("NVIDIA L4"), Verdict.WARN, "no floor is known for NVIDIA L4"),
        ("gpu.memory_patterns", of(4, wrong=1), Verdict.FAIL, "GPU 4 (GPU-00000004): 1 words"),
        ("gpu.memory_patterns", of(4, tested_gib=0.0), Verdict.INCONCLUSIVE, "makes no sense"),
        ("gpu.gemm_bf16", of(7, tflop_per_s=[600.0] * 5), Verdict.FAIL, "GPU 7 (GPU-00000007)"),
        ("gpu.gemm_bf16", of(7, tflop_per_s=[650.0] * 5), Verdict.WARN, "below the expected"),
        ("gpu.memory_bandwidth", of(7, gb_per_s=[4050.0] * 5), Verdict.WARN, "5.8% below the median of its neigh"),
        ("gpu.gemm_bf16", of(7, tflop_per_s=[1400.0] * 5), Verdict.INCONCLUSIVE, "physical bound"),
        ("gpu.gemm_bf16", of(7, wrong=12), Verdict.FAIL, "12 elements"),
        ("gpu.gemm_bf16", load_of(7, clock_reasons=[0x44] * 6), Verdict.FAIL, "hardware thermal slowdown in 6 of 6"),
        ("gpu.gemm_bf16", load_of(7, clock_reasons=[0x80] + [4] * 30), Verdict.WARN, "power brake in 1 of 31"),
        ("gpu.gemm_bf16", load_of(7, clock_reasons=[0x20] * 6), Verdict.WARN, "software thermal slowdown"),
        ("gpu.gemm_bf16", load_of(7, clock_reasons=[]), Verdict.INCONCLUSIVE, "does not tell"),
        ("gpu.gemm_bf16", load_of(7, xids=[79]), Verdict.FAIL, "XIDs [79]"),
        ("gpu.gemm_bf16", load_of(7, xids=None), Verdict.PASS, "8 GPU(s): bf16 GEMM 680 to 680"),
        ("gpu.gemm_fp8", lambda f: f.update(unsupported="no fp8", gpus=[]), Verdict.SKIPPED, "no fp8"),
        ("gpu.gemm_fp8", lambda f: f.update(gpus=[]), Verdict.INCONCLUSIVE, "nothing was measured"),
        ("gpu.same_bits", lambda f: f["tallies"].update({"2": {"9": 4, "1": 1}}), Verdict.FAIL, "GPU 2 computed other"),
        ("gpu.same_bits", lambda f: f["tallies"].pop("2"), Verdict.INCONCLUSIVE, "not every GPU"),
        ("fabric.nvlink", of(3, active=17), Verdict.FAIL, "17 of 18"),
        ("fabric.nvlink", of(3, active=None), Verdict.INCONCLUSIVE, "tells of no NVLink"),
        ("fabric.nvlink", rename_all("NVIDIA L4"), Verdict.PASS, "8 GPUs with 18 NVLinks"),
    ],
)
def test_judges(check: str, change: Change, verdict: Verdict, says: str) -> None:
    judgement = judged(check, change)
    assert judgement.verdict is verdict, judgement.reason
    assert says in judgement.reason


def test_a_slow_pair_names_both_ends() -> None:
    def slow(facts: Any) -> None:
        for pair in facts["pairs"]:
            if pair["source"]["index"] == 2 and pair["target"]["index"] == 5:
                pair["gb_per_s"] = [190.0] * 5

    judgement = judged("fabric.peer", slow)
    assert judgement.verdict is Verdict.FAIL
    assert "to GPU 5, GPU 2 (GPU-00000002): peer copy on H200 SXM 190 GB/s" in judgement.reason
    assert "GPU 4" not in judgement.reason


def test_peer_access_that_is_gone_fails() -> None:
    judgement = judged("fabric.peer", lambda facts: facts["pairs"][0].update(direct=False))
    assert judgement.verdict is Verdict.FAIL and "no direct access" in judgement.reason


KERNEL_LOG = """\
6,1203,11021453,-;NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  580.159.04
3,1410,99021453,-;NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.
3,1411,99021999,-;NVRM: Xid (PCI:0000:5d:00): 31, pid=4242, name=python3, channel 0x2, intr 00000000
"""


def test_errors_are_read_from_the_kernel_log() -> None:
    assert gpu.find_xids(KERNEL_LOG) == (("0000:3b:00", 79), ("0000:5d:00", 31))
    assert gpu.find_xids("") == ()
    judgement = gpu.judge_kernel_log(gpu.KernelLogFacts(xids=gpu.find_xids(KERNEL_LOG), reason=""), Limits())
    assert (
        judgement.verdict is Verdict.FAIL and judgement.reason == "PCI 0000:3b:00: XID 79, fell off the bus, 1 time(s)"
    )
    mild = gpu.judge_kernel_log(gpu.KernelLogFacts(xids=(("0000:5d:00", 31),), reason=""), Limits())
    assert mild.verdict is Verdict.WARN


def test_a_kernel_log_that_may_not_be_read_is_skipped_and_says_why() -> None:
    judgement = gpu.judge_kernel_log(
        gpu.KernelLogFacts(xids=None, reason="/dev/kmsg: Operation not permitted"), Limits()
    )
    assert judgement.verdict is Verdict.SKIPPED and "Operation not permitted" in judgement.reason
