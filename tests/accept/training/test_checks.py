"""The judge of a step's rate, on what a healthy node of eight H200s tells, changed."""

from typing import Any

import pytest

from seatrial.accept.catalogue import find
from seatrial.accept.check import Judgement, judge_recorded
from seatrial.accept.limits import Limit, Limits
from seatrial.accept.training import limits as known
from seatrial.dist.plan import Shape
from seatrial.model.shapes import shape
from seatrial.records import Verdict
from seatrial.settings import LoraSettings
from seatrial.train.flops import Work, flop_cost

from ..healthy import HEALTHY


def judged(facts: Any, limits: Limits | None = None) -> Judgement:
    return judge_recorded(find("training.rate"), facts, limits or Limits())


def changed(rank: int | None = None, slower: float = 1.0, **changes: Any) -> Any:
    """Healthy facts with one rank, or all of them, changed."""
    facts: Any = HEALTHY["training.rate"].model_dump(mode="json")
    for number, one in enumerate(facts["ranks"]):
        if rank in (None, number):
            one["alone_seconds"] = [seconds * slower for seconds in one["alone_seconds"]]
            one |= changes
    return facts


def test_a_token_costs_what_the_limits_say() -> None:
    cost = flop_cost(Shape.of(shape("llama-3.1-8b").to_dict()), rank=64, targets=LoraSettings().targets)
    work = Work(tokens=8192, trained_tokens=2 * 4095, squares=2 * 4096**2)
    assert cost.flop(work) / 8192 == pytest.approx(known.FLOP_PER_TOKEN, rel=1e-4)


@pytest.mark.parametrize(
    ("facts", "verdict", "says"),
    [
        (changed(5, 1.10), Verdict.FAIL, "GPU 5 (GPU-00000005): fp8 training step on H200 SXM by flash-attn-4"),
        (changed(5, 1.06), Verdict.WARN, "GPU 5 (GPU-00000005): training step alone 5.7% below the median"),
        (changed(5, 0.3), Verdict.INCONCLUSIVE, "tokens/s is above the physical bound of"),
        (changed(own_seconds=None) | {"together_seconds": [0.43] * 6}, Verdict.FAIL, "together 85.4% of alone"),
        (changed() | {"together_seconds": [0.390] * 6}, Verdict.WARN, "below the expected 0.945"),
        (changed() | {"together_seconds": [0.30] * 6}, Verdict.INCONCLUSIVE, "broken measurement"),
        (changed(2, own_seconds=0.41), Verdict.WARN, "GPU 2 (GPU-00000002): its own passes take 9.9% longer"),
        (changed(2, error="ended with code -9 while it trained alone"), Verdict.INCONCLUSIVE, "GPU 2 (GPU-00000002)"),
        (changed(alone_seconds=[0.367] * 4), Verdict.INCONCLUSIVE, "4 samples"),
        (changed(ideal_seconds=0.15), Verdict.FAIL, "MFU of a training step, base fp8 0.4085 1 is below the floor"),
        (changed(recomputed="full"), Verdict.WARN, "for want of memory the step computes full activations again"),
        ({**changed(), "ranks": []}, Verdict.INCONCLUSIVE, "no rank trained"),
    ],
)
def test_who_is_slow_alone_and_what_is_lost_together(facts: Any, verdict: Verdict, says: str) -> None:
    judgement = judged(facts)
    assert judgement.verdict is verdict, judgement.reason
    assert says in judgement.reason


def test_the_kernel_that_computes_attention_decides_the_floor() -> None:
    """21,900 tokens/s would be slow with flash-attn-4's ceiling; torch's attention is not expected to reach it."""
    slow = changed(slower=22276 / 20100, attention=["torch"])
    assert "fp8 training step" not in judged(slow).reason
    assert judged(changed(slower=22276 / 20100)).verdict is Verdict.FAIL


def test_a_healthy_node_is_told_in_one_line() -> None:
    reason = judged(changed()).reason
    assert reason == (
        "8 rank(s) alone: 2.231e+04 to 2.231e+04 tokens/s each (llama-3.1-8b, fp8 base); "
        "together 97.2% of alone, of which the slowest rank alone explains 0.0%"
    )


def test_a_contract_may_ask_for_more() -> None:
    own = Limit(
        name="training step on NVIDIA H200",
        unit="tokens/s",
        reference=24000,
        fail=23000,
        bound=62000,
        arithmetic="x",
        source="contract",
    )
    judgement = judged(changed(), Limits({own.name: own}))
    assert judgement.verdict is Verdict.FAIL and "below the floor of 2.3e+04" in judgement.reason


def test_an_unknown_gpu_is_held_against_what_its_own_products_sustain() -> None:
    facts = changed()
    for one in facts["ranks"]:
        one["gpu"]["name"] = "NVIDIA X1"
    assert judged(facts).verdict is Verdict.PASS
    for one in facts["ranks"]:
        one["ideal_seconds"] = 0.1
    assert judged(facts).verdict is Verdict.FAIL


def test_without_a_gpu_the_rate_is_recorded() -> None:
    facts = changed(gpu=None, ideal_seconds=None)
    facts["ranks"] = facts["ranks"][:2]
    judgement = judged(facts)
    assert judgement.verdict is Verdict.PASS, judgement.reason
    assert "recorded, not judged" in judgement.reason
    assert {number.name for number in judgement.measurements} >= {"step rate alone", "training together over alone"}
