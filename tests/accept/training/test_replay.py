"""The judge of steps that are taken again. Real ranks, one of which errs by a bit, are the self-test's."""

from typing import Any

import pytest

from seatrial.accept.catalogue import find
from seatrial.accept.check import Judgement, judge_recorded
from seatrial.accept.limits import Limits
from seatrial.accept.training import replay
from seatrial.records import Verdict

from ..healthy import HEALTHY


def test_the_rows_are_those_that_the_curve_was_recorded_on() -> None:
    rows = replay.fixed_rows().rows
    assert [int(row.ids.sum()) for row in rows] == [42474, 58900, 81348, 60390]
    assert len(replay.recorded_curve()) == replay.STEPS


def told(*changes: tuple[int, dict[str, Any]]) -> Judgement:
    """Healthy facts of eight GPUs with some ranks changed."""
    facts = HEALTHY["training.replay"].model_dump(mode="json")
    for rank, change in changes:
        facts["ranks"][rank] |= change
    return judge_recorded(find("training.replay"), facts, Limits())


def run(
    sha256: str = "54384c19", losses: tuple[float, ...] = (6.114, 5.255, 4.202), broken: str = ""
) -> dict[str, Any]:
    return {"sha256": sha256, "losses": losses, "broken": broken}


def test_a_healthy_node_passes_with_the_count() -> None:
    assert told() == Judgement(Verdict.PASS, told().reason, told().measurements)
    assert told().reason.startswith("24 runs of 6 steps gave one sha256 on 8 rank(s)")


@pytest.mark.parametrize(
    ("change", "verdict", "says"),
    [
        ({"alone": [run("other"), run()]}, Verdict.FAIL, "GPU 3 (GPU-00000003) trained to other bits in 1 of 2"),
        ({"alone": [run("other"), run("other")]}, Verdict.FAIL, "GPU 3 (GPU-00000003) trained to other bits in 2 of 2"),
        ({"together": run("other")}, Verdict.FAIL, "GPU 3 (GPU-00000003): other bits together than alone"),
        ({"alone": [run(), run(losses=(6.114, 5.9, 4.202))]}, Verdict.FAIL, "GPU 3 (GPU-00000003): losses 1.2e-01 off"),
        ({"alone": [run(), run(losses=(6.114,))]}, Verdict.INCONCLUSIVE, "GPU 3 (GPU-00000003): not every step"),
        (
            {"alone": [run(), run("x", (), "step 2: loss nan, gradient norm nan")]},
            Verdict.FAIL,
            "GPU 3 (GPU-00000003): step 2: loss nan",
        ),
        ({"error": "hung while it trained alone", "alone": []}, Verdict.INCONCLUSIVE, "GPU 3 (GPU-00000003) could not"),
        ({"together": None}, Verdict.INCONCLUSIVE, "did not train together"),
    ],
)
def test_the_odd_gpu_is_named(change: dict[str, Any], verdict: Verdict, says: str) -> None:
    judgement = told((3, change))
    assert judgement.verdict is verdict, judgement.reason
    assert says in judgement.reason
    assert "GPU 2" not in judgement.reason


def test_without_a_majority_who_contradicts_itself_is_named() -> None:
    facts = HEALTHY["training.replay"].model_dump(mode="json")
    facts["ranks"] = facts["ranks"][:2]
    facts["ranks"][1]["alone"] = [run("a"), run("b")]
    facts["ranks"][0]["alone"] = [run("c"), run("c")]
    reason = judge_recorded(find("training.replay"), facts, Limits()).reason
    assert "no majority among 4 replays of the same steps: GPU 1 (GPU-00000001) differ(s) from itself" in reason
    facts["ranks"][1]["alone"] = [run("a"), run("a")]
    reason = judge_recorded(find("training.replay"), facts, Limits()).reason
    assert "GPU 0 (GPU-00000000), GPU 1 (GPU-00000001) are suspect" in reason


def test_a_sum_that_is_damaged_on_every_rank_is_blamed_on_what_lies_between() -> None:
    judgement = told(*((rank, {"together": run("other")}) for rank in range(8)))
    assert judgement.verdict is Verdict.FAIL
    assert "what passes between the ranks is damaged" in judgement.reason
