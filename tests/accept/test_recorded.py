"""The judges on what a healthy GPU told them: recorded facts, which are the measurements that limits rest on."""

from pathlib import Path
from typing import Any

import pytest

from seatrial.accept.catalogue import LADDER, find
from seatrial.accept.check import Judgement, judge_recorded
from seatrial.accept.checks.gpu_compute import BATCH, GEMM_SIZE, LEAST_LOAD_SECONDS
from seatrial.accept.limits import Limits
from seatrial.records import JsonObject, Verdict, read_jsonl

RESULTS = Path(__file__).parents[2] / "results" / "accept_h100_2026-11-21"
# Short runs and long ones: the clock falls while the board warms up, and neither may be taken for a fault.
RECORDED = [record for file in sorted(RESULTS.glob("facts-*.jsonl")) for record in read_jsonl(file)]


def judged(record: JsonObject) -> Judgement:
    return judge_recorded(find(record["check"]), record["facts"], Limits())


def test_every_check_of_one_gpu_is_recorded() -> None:
    of_one_gpu = {check.name for check in LADDER if check.needs_gpus == 1}
    assert {record["check"] for record in RECORDED} == of_one_gpu


@pytest.mark.parametrize("record", RECORDED, ids=lambda record: record["check"])
def test_a_healthy_h100_passes(record: JsonObject) -> None:
    judgement = judged(record)
    assert judgement.verdict is Verdict.PASS, judgement.reason


def test_no_stretch_as_short_as_the_shortest_look_fails() -> None:
    """While the power limit settles, the rate swings between 580 and 730 TFLOP/s."""
    for record in (record for record in RECORDED if record["check"].startswith("gpu.gemm")):
        (gpu,) = record["facts"]["gpus"]
        rates = gpu["tflop_per_s"]
        batch_seconds = BATCH * 2 * GEMM_SIZE**3 / (max(rates) * 1e12)
        length = int(0.9 * LEAST_LOAD_SECONDS / batch_seconds)
        for start in range(len(rates) - length):
            stretch = [{**gpu, "tflop_per_s": rates[start : start + length]}]
            judgement = judged({**record, "facts": {**record["facts"], "gpus": stretch}})
            assert judgement.verdict is Verdict.PASS, judgement.reason


RATES = ("tflop_per_s", "gb_per_s", "host_to_device_gb_per_s", "device_to_host_gb_per_s")


@pytest.mark.parametrize("check", ["gpu.gemm_bf16", "gpu.memory_bandwidth", "gpu.pcie"])
def test_the_same_gpu_a_quarter_slower_fails(check: str) -> None:
    def slower(name: str, value: Any) -> Any:
        return [0.75 * rate for rate in value] if name in RATES else value

    for record in (record for record in RECORDED if record["check"] == check):
        gpus = [{name: slower(name, value) for name, value in gpu.items()} for gpu in record["facts"]["gpus"]]
        assert judged({**record, "facts": {**record["facts"], "gpus": gpus}}).verdict is Verdict.FAIL


TRAINING = RESULTS.parent / "accept-training_h200_2026-11-21"
OF_TRAINING = [record for file in sorted(TRAINING.glob("*.jsonl")) for record in read_jsonl(file)]


@pytest.mark.parametrize("record", OF_TRAINING, ids=lambda record: record["check"])
def test_four_healthy_h200s_train_as_they_should(record: JsonObject) -> None:
    judgement = judged(record)
    assert judgement.verdict is Verdict.PASS, judgement.reason


@pytest.mark.parametrize("gpu", range(4))
def test_one_of_them_a_tenth_slower_fails_by_name(gpu: int) -> None:
    (record,) = (record for record in OF_TRAINING if record["check"] == "training.rate")
    ranks = [dict(rank) for rank in record["facts"]["ranks"]]
    ranks[gpu]["alone_seconds"] = [seconds / 0.9 for seconds in ranks[gpu]["alone_seconds"]]
    judgement = judged({**record, "facts": {**record["facts"], "ranks": ranks}})
    assert judgement.verdict is Verdict.FAIL
    assert f"GPU {gpu} (GPU-" in judgement.reason
    assert all(f"GPU {other} (GPU-" not in judgement.reason for other in range(4) if other != gpu), judgement.reason


OF_TWO = list(read_jsonl(RESULTS.parent / "accept_h200_2026-11-21" / "facts-2gpus.jsonl"))


@pytest.mark.parametrize("record", OF_TWO, ids=lambda record: record["check"])
def test_two_healthy_h200s_pass(record: JsonObject) -> None:
    """The rings of two that a model of eight once took for faults."""
    judgement = judged(record)
    assert judgement.verdict is (Verdict.SKIPPED if ".rdma" in record["check"] else Verdict.PASS), judgement.reason


def test_their_links_a_tenth_slower_fail() -> None:
    (record,) = (record for record in OF_TWO if record["check"] == "collectives.nccl")
    steps = [{**step, "seconds": [seconds / 0.9 for seconds in step["seconds"]]} for step in record["facts"]["steps"]]
    judgement = judged({**record, "facts": {**record["facts"], "steps": steps}})
    assert judgement.verdict is Verdict.FAIL
    for name in ("all-gather", "reduce-scatter", "all-reduce", "all-to-all"):
        assert judgement.reason.count(f"{name} busbw") == 1
    assert "of 16 GiB" in judgement.reason and "(and 1 smaller)" in judgement.reason
