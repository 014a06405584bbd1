"""Collectives: nccl-tests' definitions, exactness on real gloo ranks, and NCCL's log."""

from typing import Any

import pytest
import torch

from seatrial.accept.checks import ranks
from seatrial.accept.checks.collectives import RanksFacts, judge_loopback, judge_nccl
from seatrial.accept.checks.ranks import Collective, busbw_gb_per_s, read_nccl_log, run_on_ranks
from seatrial.accept.limits import Limits
from seatrial.records import Verdict

from ..healthy import GIB_4, HEALTHY, steps


@pytest.mark.parametrize(
    ("collective", "factor"),
    [("all_reduce", 1.75), ("all_gather", 0.875), ("reduce_scatter", 0.875), ("all_to_all", 0.875), ("broadcast", 1.0)],
)
def test_busbw_is_defined_as_in_nccl_tests(collective: Collective, factor: float) -> None:
    """S / t times the factor of nccl-tests' PERFORMANCE.md, for 8 ranks; GB is 10^9 and sizes are powers of two."""
    assert busbw_gb_per_s(collective, 2**30, 0.5, 8) == pytest.approx(2**30 / 0.5 / 1e9 * factor)


def test_every_collective_is_exact_on_three_gloo_ranks() -> None:
    """Three, so that the sizes of shares are odd."""
    asked: list[tuple[Collective, int]] = [
        ("all_reduce", 8),
        ("all_reduce", 100_004),
        ("all_gather", 4096),
        ("reduce_scatter", 4096),
        ("all_to_all", 4096),
        ("broadcast", 4096),
    ]
    found, choice = run_on_ranks("gloo", 3, asked, seconds=0.3)
    assert [(step.collective, step.wrong) for step in found] == [(collective, 0) for collective, _ in asked]
    assert [step.size_bytes for step in found] == [8, 100_004, 4092, 4092, 4092, 4092]
    assert all(len(step.seconds) >= 5 and min(step.seconds) > 0 for step in found)
    assert choice.algorithms == {}


@pytest.mark.parametrize("collective", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"])
def test_one_wrong_bit_is_counted(collective: Collective) -> None:
    """A world of one rank, in which every collective is a copy; the broken one flips the last bit of one element."""
    buffer_N = torch.empty(1000)
    part_P, received_N = (torch.empty(0 if collective == "all_reduce" else 1000) for _ in range(2))

    def healthy() -> None:
        {"all_gather": lambda: buffer_N.copy_(part_P), "reduce_scatter": lambda: part_P.copy_(buffer_N)}.get(
            collective, lambda: received_N.copy_(buffer_N) if len(received_N) else None
        )()

    def broken() -> None:
        healthy()
        result = {"reduce_scatter": part_P, "all_to_all": received_N}.get(collective, buffer_N)
        result.view(torch.int32)[321] ^= 1

    arguments: tuple[Any, ...] = (buffer_N, part_P, received_N, 0, 1)
    assert ranks._wrong_elements(collective, healthy, *arguments) == 0
    assert ranks._wrong_elements(collective, broken, *arguments) == 1


NCCL_LOG = """\
node-1:2211:2298 [0] NCCL INFO NVLS multicast support is not available on dev 0
node-1:2211:2298 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
node-1:2212:2299 [1] NCCL INFO Channel 01/0 : 1[1] -> 0[0] via P2P/CUMEM/read
node-1:2211:2211 [0] NCCL INFO AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}
node-1:2211:2211 [0] NCCL INFO AllReduce: 4294967296 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}
node-1:2211:2211 [0] NCCL INFO AllGather: 131072 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..23}
"""


def test_what_nccl_chose_is_read_from_its_log() -> None:
    choice = read_nccl_log(NCCL_LOG)
    assert choice.transports == ("P2P",)
    assert choice.algorithms == {"AllReduce 8": "RING", "AllReduce 4294967296": "RING", "AllGather 131072": "RING"}
    network = "host:1:257 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0\n"
    assert read_nccl_log(NCCL_LOG + network).transports == ("NET/Socket", "P2P")
    assert read_nccl_log("") == ranks.NcclChoice(transports=(), algorithms={})


def nccl(**changes: Any) -> RanksFacts:
    return RanksFacts.model_validate(HEALTHY["collectives.nccl"].model_dump() | changes)


@pytest.mark.parametrize(
    ("facts", "verdict", "says"),
    [
        (nccl(steps=steps(8, 330.0)), Verdict.FAIL, "330 GB/s is below the floor of 340"),
        (nccl(steps=steps(8, 350.0)), Verdict.WARN, "below the expected 355"),
        (nccl(steps=steps(8, 470.0)), Verdict.INCONCLUSIVE, "physical bound of 450"),
        (
            nccl(choice={"transports": ("P2P",), "algorithms": {f"AllReduce {GIB_4}": "NVLS"}}),
            Verdict.FAIL,
            "366.2 GB/s is below the floor of 439.9",
        ),
        (nccl(choice={"transports": ("P2P",), "algorithms": {}}), Verdict.WARN, "an algorithm NCCL did not tell"),
        (
            nccl(choice={"transports": ("NET/Socket", "SHM"), "algorithms": {f"AllReduce {GIB_4}": "RING"}}),
            Verdict.FAIL,
            "NCCL went by NET/Socket and SHM between GPUs that NVLink connects",
        ),
        (nccl(ranks=2, gpu_names=("NVIDIA H200",) * 2), Verdict.WARN, "no floor for 2 x NVIDIA H200"),
        (nccl(steps=steps(8, 366.0)[:2]), Verdict.INCONCLUSIVE, "no all-reduce was large enough"),
        (nccl(steps=()), Verdict.INCONCLUSIVE, "answer nothing"),
    ],
)
def test_nccl_is_judged_by_the_algorithm_it_chose(facts: RanksFacts, verdict: Verdict, says: str) -> None:
    judgement = judge_nccl(facts, Limits())
    assert judgement.verdict is verdict, judgement.reason
    assert says in judgement.reason


def test_a_wrong_sum_fails_whatever_its_speed() -> None:
    good = HEALTHY["collectives.loopback"].model_dump()
    good["steps"][0]["wrong"] = 2
    judgement = judge_loopback(RanksFacts.model_validate(good), Limits())
    assert judgement.verdict is Verdict.FAIL
    assert judgement.reason == "all_reduce of 16777216 B: 2 elements are wrong"
    good["steps"][0].update(wrong=0, seconds=(0.5,) * 5)
    assert judge_loopback(RanksFacts.model_validate(good), Limits()).verdict is Verdict.FAIL
