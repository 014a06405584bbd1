"""What is concluded from a recorded trial, and from the same trial with one thing wrong."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from seatrial.drill.fault import Fault
from seatrial.drill.judge import Expected, judge, lost_steps, none_valid, packs_amiss, productive_seconds
from seatrial.drill.trial import Evidence, Start
from seatrial.records import Verdict
from seatrial.train.attempts import UNHEARD

RECORDED = json.loads((Path(__file__).parent / "recorded" / "killed.json").read_text())
FAULT = Fault.model_validate(RECORDED["fault"])
EVERY = 4


def evidence(**changed: Any) -> Evidence:
    """Rank 1 of two was killed by SIGKILL at step 7; the scheduler went on with three ranks."""
    held = {name: RECORDED[name] for name in ("fired", "events", "metrics", "witness", "wounded", "sha256")}
    return Evidence(starts=tuple(Start(**start) for start in RECORDED["starts"]), **{**held, **changed})


EXPECTED = Expected(RECORDED["sha256"], steps=12, packs_per_step=5, save_every_steps=EVERY, timeout_seconds=12.0)


def without(kind: str) -> list[Any]:
    return [event for event in RECORDED["events"] if event["event"] != kind]


def test_as_it_was() -> None:
    judged = judge(FAULT, evidence(), EXPECTED)
    assert judged.verdict is Verdict.PASS, judged.reasons
    assert judged.detected_s is not None
    assert 0 <= judged.detected_s < 2
    assert judged.recovered_s is not None
    assert judged.recovered_s > judged.detected_s
    assert 0 < judged.lost_steps <= EVERY
    assert "rank 1" in judged.culprit


def failing(text: str, **changed: Any) -> None:
    judged = judge(FAULT, evidence(**changed), EXPECTED)
    assert judged.verdict is Verdict.FAIL
    assert any(text in reason for reason in judged.reasons), judged.reasons


def test_other_bits() -> None:
    failing("where the undisturbed run has", sha256="0" * 64)
    failing("sha256 none", sha256=None)


def test_a_fault_that_nothing_tells_of() -> None:
    failing("nothing in events.jsonl tells of it", events=without("fault"))


def test_the_wrong_rank_is_blamed() -> None:
    blamed = [{**event, "ranks": [0]} if event["event"] == "fault" else event for event in RECORDED["events"]]
    failing("blames ranks [0], and it was [1]", events=blamed)
    nobody = [{**event, "ranks": []} if event["event"] == "fault" else event for event in RECORDED["events"]]
    failing("blames ranks [], and it was [1]", events=nobody)


def test_an_attempt_that_was_lost_for_nothing() -> None:
    judged = judge(FAULT.model_copy(update={"answer": "unharmed"}), evidence(), EXPECTED)
    assert judged.verdict is Verdict.FAIL
    assert any("an attempt was lost" in reason for reason in judged.reasons)


def test_a_lost_node_is_named_by_all_its_ranks() -> None:
    node = FAULT.injections[-1].model_copy(update={"on": "node", "rank": 3})
    fault = FAULT.model_copy(update={"answer": "node", "nodes": 2, "worlds": (4,), "injections": (node,)})

    def blaming(*ranks: int) -> tuple[str, ...]:
        told = {"what": "node silent", "ranks": list(ranks)}
        events = [{**e, **told} if e["event"] == "fault" else e for e in RECORDED["events"]]
        return judge(fault, evidence(events=events), EXPECTED).reasons

    assert blaming(2, 3) == ()
    assert blaming() == (), "it was lost before it told of them"
    assert blaming(0) == ("blames ranks [0], and it was [2, 3]",)


def test_what_only_the_next_attempt_could_tell_was_noticed_when_torchrun_ended() -> None:
    again = next(event for event in RECORDED["events"] if event["event"] == "start" and event["attempt"] == 2)
    unheard = {
        "event": "fault",
        "what": UNHEARD,
        "time": again["time"],
        "reason": "attempt 1",
        "attempt": 1,
        "ranks": [],
    }
    events = sorted([*without("fault"), unheard], key=lambda event: float(event["time"]))
    judged = judge(FAULT.model_copy(update={"answer": "agent"}), evidence(events=events), EXPECTED)
    assert judged.verdict is Verdict.PASS, judged.reasons
    assert judged.detected_s == pytest.approx(RECORDED["starts"][0]["ended"] - RECORDED["fired"][-1]["time"])
    assert judge(FAULT, evidence(events=events), EXPECTED).verdict is Verdict.FAIL  # a killed rank is told of at once


def test_a_cut_link_may_take_as_long_as_a_collective() -> None:
    fault = FAULT.model_copy(update={"answer": "link"})
    told = {"what": "connection lost", "ranks": [], "reason": "Timed out: a link between nodes is cut"}
    struck = RECORDED["fired"][-1]["time"]

    def noticed_after(seconds: float) -> Verdict:
        events = [{**e, **told, "time": struck + seconds} if e["event"] == "fault" else e for e in RECORDED["events"]]
        return judge(fault, evidence(events=events), EXPECTED).verdict

    assert noticed_after(EXPECTED.timeout_seconds + 4) is Verdict.PASS
    assert noticed_after(EXPECTED.timeout_seconds + 6) is Verdict.WARN


def test_noticed_late_is_a_warning() -> None:
    late = [
        {**event, "time": event["time"] + 5} if event["event"] == "fault" else event for event in RECORDED["events"]
    ]
    judged = judge(FAULT, evidence(events=late), EXPECTED)
    assert judged.verdict is Verdict.WARN
    assert "where 2.0 s are promised" in judged.reasons[0]


def test_what_never_struck_is_inconclusive() -> None:
    judged = judge(FAULT.model_copy(update={"answer": "none"}), evidence(fired=()), EXPECTED)
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert "did not come about" in judged.reasons[0]


def test_a_training_that_does_not_end() -> None:
    lost = replace(evidence().starts[-1], outcome={"status": "failed", "reason": "no luck", "exit_code": 70})
    judged = judge(FAULT, replace(evidence(), starts=(evidence().starts[0], lost)), EXPECTED)
    assert judged.verdict is Verdict.FAIL
    assert "not done after 2 starts: no luck" in judged.reasons


def test_packs_lost_and_packs_used_twice() -> None:
    metrics = RECORDED["metrics"]
    assert packs_amiss(evidence(), EXPECTED) == []
    assert packs_amiss(evidence(metrics=metrics[:-1]), EXPECTED)
    twice = [*metrics[:-1], {**metrics[-1], "packs": metrics[0]["packs"]}]
    assert packs_amiss(evidence(metrics=twice), EXPECTED)
    again = [*metrics, {**metrics[0], "attempt": 3, "packs": [7]}]
    assert "step 1 was run again on other packs" in packs_amiss(evidence(metrics=again), EXPECTED)
    drifted = [*metrics, {**metrics[0], "attempt": 3, "loss": 0.0}]
    assert "step 1 was run again with another loss" in packs_amiss(evidence(metrics=drifted), EXPECTED)


def test_packs_that_were_left_out_on_record() -> None:
    kept = [record for record in RECORDED["metrics"] if record["step"] != 12]
    skipped = {"event": "skip", "step": 12, "packs": [55, 59], "time": 0.0}
    assert packs_amiss(evidence(metrics=kept, events=[*RECORDED["events"], skipped]), EXPECTED) == []


def test_more_than_an_interval_lost() -> None:
    lost, allowed = lost_steps(evidence(), EVERY)
    assert 0 < lost <= allowed
    assert lost_steps(evidence(events=without("resume")), 1)[0] > lost
    failing("went on from step 0, though step 4 had been committed", events=without("resume"))


def test_an_attempt_that_took_no_step_hides_no_loss() -> None:
    later = [{**record, "attempt": 3} if record["attempt"] == 2 else record for record in RECORDED["metrics"]]
    moved = [{**event, "attempt": 3} if event.get("attempt") == 2 else event for event in RECORDED["events"]]
    between = {"event": "start", "attempt": 2, "time": RECORDED["starts"][0]["ended"], "world_size": 2}
    assert lost_steps(evidence(metrics=later, events=[*moved, between]), EVERY) == lost_steps(evidence(), EVERY)


def test_no_valid_checkpoint_after_the_first_commit() -> None:
    assert not none_valid(evidence())
    after = {**RECORDED["witness"][-1], "valid": []}
    assert none_valid(evidence(witness=[*RECORDED["witness"], after]))
    failing("no checkpoint was valid", witness=[after])


def test_each_step_counts_once() -> None:
    assert productive_seconds(evidence()) < sum(record["seconds"] for record in RECORDED["metrics"])


@pytest.mark.parametrize("answer", ["stall", "corrupt", "skip", "save failed", "refused"])
def test_another_word_is_no_answer(answer: str) -> None:
    judged = judge(FAULT.model_copy(update={"answer": answer}), evidence(), EXPECTED)
    assert judged.verdict is Verdict.FAIL
