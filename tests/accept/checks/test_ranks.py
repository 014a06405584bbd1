"""Collectives: nccl-tests' definitions, exactness on real gloo ranks, and NCCL's log."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seatrial.accept.busbw import COLLECTIVES, Collective
from seatrial.accept.checks import ranks
from seatrial.accept.checks.collectives import RanksFacts, judge_loopback, judge_nccl, nccl_steps
from seatrial.accept.checks.ranks import Buffers, run_on_ranks
from seatrial.accept.limits import Limits
from seatrial.accept.nccl_log import read_nccl_log
from seatrial.records import Verdict

from ..healthy import GIB_4, HEALTHY, NCCL_LOG, steps


def test_every_collective_is_exact_on_three_gloo_ranks() -> None:
    """Three, so that the sizes of shares are odd."""
    asked: list[tuple[Collective, int]] = [
        ("all_reduce", 8),
        ("all_reduce", 100_004),
        ("all_gather", 4096),
        ("reduce_scatter", 4096),
        ("all_to_all", 4096),
        ("broadcast", 4096),
        ("send_recv", 4096),
    ]
    found, chosen = run_on_ranks("gloo", 3, asked, seconds=0.3)
    assert [(step.collective, step.wrong) for step in found] == [(collective, 0) for collective, _ in asked]
    assert [step.size_bytes for step in found] == [8, 100_004, 4092, 4092, 4092, 4096, 4096]
    assert all(len(step.seconds) >= 5 and min(step.seconds) > 0 for step in found)
    assert chosen.algorithms == {}


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_one_wrong_bit_is_counted(collective: Collective, monkeypatch: pytest.MonkeyPatch) -> None:
    """A world of one rank, in which every collective is a copy; the broken one flips the last bit of one element.

    Compared in pieces that do not divide the buffer.
    """
    monkeypatch.setattr(ranks, "COMPARED_AT_ONCE", 300)
    buffers = Buffers.made(collective, 4000, 1, torch.device("cpu"))
    whole_N, part_P, received_N = buffers.whole_N, buffers.part_P, buffers.received_N

    def healthy() -> None:
        {"all_gather": lambda: whole_N.copy_(part_P), "reduce_scatter": lambda: part_P.copy_(whole_N)}.get(
            collective, lambda: received_N.copy_(whole_N) if len(received_N) else None
        )()

    def broken() -> None:
        healthy()
        result = {"reduce_scatter": part_P, "all_to_all": received_N, "send_recv": received_N}.get(collective, whole_N)
        result.view(torch.int32)[321] ^= 1

    assert ranks.wrong_elements(collective, healthy, buffers, 0, 1) == 0
    assert ranks.wrong_elements(collective, broken, buffers, 0, 1) == 1


def test_a_rank_that_hangs_is_named_by_those_that_waited() -> None:
    assert ranks.who_hung({0: "in all_reduce of 8 B: timed out", 2: "in all_reduce of 8 B: timed out"}, 3) == (
        "rank 1 hung or was killed, and the others waited in vain: rank 0 in all_reduce of 8 B: timed out; "
        "rank 2 in all_reduce of 8 B: timed out"
    )
    assert ranks.who_hung({0: "in x: a", 1: "in x: b"}, 2) == "every rank gave up: rank 0 in x: a; rank 1 in x: b"
    assert ranks.who_hung({}, 2) == "every rank was killed"


def test_what_stops_all_ranks_is_said() -> None:
    with pytest.raises(RuntimeError, match="every rank gave up: rank 0 in gather of 8 B: 'gather'"):
        run_on_ranks("gloo", 2, [("gather", 8)], seconds=0.1)  # type: ignore[list-item]


def test_sizes_go_from_8_bytes_to_16_gib_as_far_as_time_and_memory_allow() -> None:
    long = nccl_steps(140 * 2**30, 60.0)
    assert {name for name, _ in long} == set(COLLECTIVES)
    for name in COLLECTIVES:
        sizes = [size for one, size in long if one == name]
        assert (min(sizes), max(sizes)) == (8, 16 * 2**30)
    assert max(size for _, size in nccl_steps(140 * 2**30, 2.0)) == 4 * 2**30
    assert max(size for _, size in nccl_steps(4 * 2**30, 60.0)) == 2**30


@given(st.floats(1e-6, 2.0))
def test_a_sample_is_long_enough_to_be_timed_and_no_longer(call_seconds: float) -> None:
    """A millisecond, or the 20 calls of nccl-tests: a call that takes as long is timed by itself, so its tail shows."""
    count = ranks.calls_in_a_row(call_seconds)
    assert 1 <= count <= 20
    assert count == 20 or count * call_seconds >= 1e-3
    assert count == 1 or (count - 1) * call_seconds < 1e-3


def choice(**changes: Any) -> dict[str, Any]:
    return read_nccl_log(NCCL_LOG).model_dump() | changes


def nccl(**changes: Any) -> RanksFacts:
    return RanksFacts.model_validate(HEALTHY["collectives.nccl"].model_dump() | changes)


@pytest.mark.parametrize(
    ("facts", "verdict", "says"),
    [
        (nccl(steps=steps(8, 330.0)), Verdict.FAIL, "330 GB/s is below the floor of 337"),
        (nccl(steps=steps(8, 350.0)), Verdict.WARN, "below the expected 353"),
        (nccl(steps=steps(8, 470.0)), Verdict.INCONCLUSIVE, "physical bound of 450"),
        (
            nccl(choice=choice(algorithms={f"AllReduce {GIB_4}": "NVLS"})),
            Verdict.FAIL,
            "366.2 GB/s is below the floor of 437.9",
        ),
        (nccl(choice=choice(algorithms={})), Verdict.WARN, "an algorithm NCCL did not tell"),
        (
            nccl(choice=choice(transports=("NET/Socket", "SHM"))),
            Verdict.FAIL,
            "NCCL went by NET/Socket and SHM between GPUs that NVLink connects",
        ),
        (nccl(ranks=2, gpu_names=("NVIDIA T4",) * 2), Verdict.WARN, "no model for 2 x NVIDIA T4"),
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
    assert judgement.reason == "all_reduce of 16 MiB: 2 elements are wrong"
    good["steps"][0].update(wrong=0, seconds=(0.5,) * 5)
    assert judge_loopback(RanksFacts.model_validate(good), Limits()).verdict is Verdict.FAIL
