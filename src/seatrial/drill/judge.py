"""Whether a training came through a fault as promised: a function of what its run directory held afterwards."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from seatrial.drill.fault import Answer, Fault
from seatrial.drill.trial import Evidence
from seatrial.records import JsonObject, Verdict
from seatrial.train.attempts import UNHEARD

DEAD_SECONDS = 2.0
"""A dead process is to be noticed within it."""

HUNG_SECONDS = 10.0
"""One that hangs within three step times and this long."""

LINK_SECONDS = 5.0
"""A cut link within the longest that a collective waits for a peer, and this long, in which nodes hear each other."""

LOST_NODE_SECONDS = 20.0
"""A node that is gone together with all that could tell of it: twice what a node may be silent for."""

_WHAT = {
    "killed": ("killed",),
    "failed": ("failed",),
    "agent": ("launcher killed", "killed", UNHEARD),
    "node": ("node silent", "launcher killed", "killed", UNHEARD),
}


@dataclass(frozen=True)
class Judged:
    """One line of the result. Seconds are None where there was nothing to measure.

    ``detected_s``: from the fault to the run's word of it, or to the end of torchrun where nobody was left to say one.
    ``recovered_s``: from the fault to the end of the first step of the attempt after it; where no attempt was lost, to
    the next committed checkpoint. ``lost_steps``: the most steps that an attempt had to do again.
    """

    verdict: Verdict
    reasons: tuple[str, ...]
    detected_s: float | None
    recovered_s: float | None
    lost_steps: int
    culprit: str


@dataclass(frozen=True)
class Expected:
    """What an undisturbed training gives. ``sha256``: None where other bits are no fault (no exact mode).

    ``timeout_seconds``: the longest that a collective waits for a peer.
    """

    sha256: str | None
    steps: int
    packs_per_step: int
    save_every_steps: int
    timeout_seconds: float


def judge(fault: Fault, evidence: Evidence, expected: Expected) -> Judged:
    """PASS, WARN (right, but noticed late), FAIL, or INCONCLUSIVE where the fault never struck."""
    said = answer(fault, evidence)
    struck = _struck_at(evidence)
    detected = max(0.0, _noticed_at(said, evidence) - struck) if said is not None and struck is not None else None
    lost, allowed = lost_steps(evidence, expected.save_every_steps)
    wrong = [*_unfinished(evidence), *_other_bits(evidence, expected), *packs_amiss(evidence, expected)]
    if lost > allowed:
        wrong.append(f"{lost} steps lost, where at most {allowed} may be")
    wrong += resumed_too_early(evidence)
    if none_valid(evidence):
        wrong.append("at a restart no checkpoint was valid, though one had been committed")
    if said is None and fault.answer not in ("none", "unharmed"):
        wrong.append(f"nothing in events.jsonl tells of it (expected: {fault.answer})")
    late: list[str] = []
    culprit = ""
    if said is not None:
        culprit = str(said.get("reason", ""))
    guilty = _guilty(fault)
    named = [guilty, []] if fault.answer == "node" else [guilty]  # the ranks of a node that never told of them
    if said is not None and fault.answer in ("killed", "stall", "node") and said["ranks"] not in named:
        wrong.append(f"blames ranks {said['ranks']}, and it was {guilty}")
    if fault.answer == "unharmed" and (len(evidence.starts) > 1 or evidence.starts[0].returncode != 0):
        codes = [start.returncode for start in evidence.starts]
        wrong.append(f"an attempt was lost (exit codes {codes}), though nothing had gone wrong")
    if detected is not None:
        limit = _limit_seconds(fault.answer, evidence, expected)
        if limit is not None and detected > limit:
            late.append(f"noticed after {detected:.1f} s, where {limit:.1f} s are promised")
    verdict = Verdict.FAIL if wrong else Verdict.WARN if late else Verdict.PASS
    unstruck = [f"{i} did not come about" for i in fault.injections[len(evidence.fired) :]]
    if fault.wound is not None and evidence.wounded is None:
        unstruck.append(f"no {fault.wound}: the training had ended before")
    if unstruck and verdict is not Verdict.FAIL:
        verdict = Verdict.INCONCLUSIVE
    return Judged(verdict, (*unstruck, *wrong, *late), detected, recovered_seconds(evidence), lost, culprit)


def inconclusive(reason: str) -> Judged:
    """Of a trial that did not take place."""
    return Judged(Verdict.INCONCLUSIVE, (reason,), None, None, 0, "")


def answer(fault: Fault, evidence: Evidence) -> JsonObject | None:
    """The event with which the run told of the fault; None when it did not, or had not to."""
    struck = _struck_at(evidence)
    if struck is None:
        return None
    after = [event for event in evidence.events if event["time"] >= struck - 0.01]
    if fault.answer in ("none", "unharmed"):
        ended = next((start.ended for start in evidence.starts if start.ended >= struck), None)
        lost = len(evidence.starts) > 1 and ended is not None
        return next((e for e in after if e["event"] in ("alarm", "fault")), {"time": ended} if lost else None)
    return next((event for event in after if tells_of(fault.answer, event, evidence)), None)


def tells_of(expected: Answer, event: JsonObject, evidence: Evidence) -> bool:
    """Whether an event is the word of a fault that is to be answered so."""
    kind, what = str(event["event"]), str(event.get("what", ""))
    match expected:
        case "killed" | "agent" | "node":
            return kind == "fault" and what in _WHAT[expected]
        case "failed":
            return (kind == "fault" and what == "failed") or kind == "failed"
        case "stall":
            return kind == "stall"
        case "link":
            told = kind == "stall" or (kind == "fault" and what == "connection lost")
            return told and event["ranks"] == [] and "link" in str(event["reason"])
        case "stopped":
            return kind in ("signal", "preempted", "done")  # there may be so little left to do that it is done
        case "save failed":
            return kind == "save_failed" or (kind == "alarm" and what == "old checkpoints not deleted")
        case "corrupt":
            wounded = evidence.wounded["what"] if evidence.wounded is not None else None
            return kind == "fault" and what == "corrupt checkpoint" and str(event["checkpoint"]) == wounded
        case "skip":
            return kind == "skip"
        case "refused":
            wounded = str(evidence.wounded["what"]) if evidence.wounded is not None else None
            return kind == "failed" and wounded is not None and wounded in str(event["reason"])
        case "none" | "unharmed":
            return False


def lost_steps(evidence: Evidence, every: int) -> tuple[int, int]:
    """The most steps that were done again after one start, and how many may have been.

    A save that is due waits for the one under way, so that when training ends after ``last`` steps the newest commit
    may be that of the interval before: one interval, and what was done since the last save was due. A save that failed,
    and a checkpoint that was damaged, add one interval each.
    """
    resumed = {event["attempt"]: int(event["step"]) for event in evidence.events if event["event"] == "resume"}
    spoilt = [event for event in evidence.events if event["event"] == "save_failed" or _is_corruption(event)]
    reached: dict[int, int] = {}  # by each attempt that took a step
    for record in evidence.metrics:
        reached[record["attempt"]] = max(int(record["step"]), reached.get(record["attempt"], 0))
    worst, allowed = 0, every
    for before, after in pairwise(sorted(reached)):
        last = reached[before]
        lost = max(0, last - resumed.get(after, 0))
        if lost >= worst:
            worst, allowed = lost, every * (1 + len(spoilt)) + last % every
    return worst, allowed


def resumed_too_early(evidence: Evidence) -> list[str]:
    """Each attempt goes on from the newest checkpoint that was committed, unless that was found to be damaged."""
    damaged = {str(event["checkpoint"]) for event in evidence.events if _is_corruption(event)}
    resumed = {int(event["attempt"]): int(event["step"]) for event in evidence.events if event["event"] == "resume"}
    wrong, newest, attempt = [], 0, 0
    for event in evidence.events:
        if event["event"] == "save" and event["checkpoint"] not in damaged:
            newest = max(newest, int(event["step"]))
        elif event["event"] == "start":
            attempt = int(event["attempt"])
        elif event["event"] == "data" and resumed.get(attempt, 0) < newest:  # said when all is loaded
            wrong.append(f"went on from step {resumed.get(attempt, 0)}, though step {newest} had been committed")
    return wrong


def packs_amiss(evidence: Evidence, expected: Expected) -> list[str]:
    """Each pack of the global stream is used once, but for those that the run says that it left out."""
    kept: dict[int, JsonObject] = {}
    wrong = []
    for record in evidence.metrics:
        before = kept.get(record["step"])
        if before is not None and before["packs"] != record["packs"]:
            wrong.append(f"step {record['step']} was run again on other packs")
        if before is not None and expected.sha256 is not None and before["loss"] != record["loss"]:
            wrong.append(f"step {record['step']} was run again with another loss")
        kept[record["step"]] = record
    used = sorted(pack for record in kept.values() for pack in record["packs"])
    left_out = {pack for event in evidence.events if event["event"] == "skip" for pack in _range(event["packs"])}
    if used != [pack for pack in range(expected.steps * expected.packs_per_step) if pack not in left_out]:
        wrong.append(f"{len(used)} packs used, not each once")
    return wrong


def none_valid(evidence: Evidence) -> bool:
    """Whether, at any start after the first commit, there was no checkpoint to be trusted."""
    commits = [event["time"] for event in evidence.events if event["event"] == "save"]
    return any(not seen["valid"] for seen in evidence.witness if commits and seen["time"] > min(commits))


def recovered_seconds(evidence: Evidence) -> float | None:
    """From the last injection until training was under way again."""
    if not evidence.fired:
        return None
    struck = float(evidence.fired[-1]["time"])
    for event in evidence.events:
        if event["event"] == "data" and event["time"] > struck:  # said once all is loaded, before the first step
            attempt = _attempt_at(evidence, float(event["time"]))
            first = next((record["seconds"] for record in evidence.metrics if record["attempt"] == attempt), 0.0)
            return float(event["time"]) + float(first) - struck
    saved = [float(event["time"]) for event in evidence.events if event["event"] in ("save", "done")]
    return next((time - struck for time in saved if time > struck), None)


def productive_seconds(evidence: Evidence) -> float:
    """Of the steps whose result was kept, each once."""
    kept = {record["step"]: float(record["seconds"]) for record in evidence.metrics}
    return sum(kept.values())


def _struck_at(evidence: Evidence) -> float | None:
    if evidence.wounded is not None:
        return float(evidence.wounded["time"])
    return float(evidence.fired[-1]["time"]) if evidence.fired else None


def _noticed_at(said: JsonObject, evidence: Evidence) -> float:
    """When the event was said; where only the next attempt could say it, when torchrun ended."""
    if said.get("what") == UNHEARD:
        ends = [start.ended for start in evidence.starts if start.ended <= said["time"]]
        return max(ends, default=float(said["time"]))
    return float(said["time"])


def _guilty(fault: Fault) -> list[int]:
    """The ranks that the last injection struck: one, or those of a node."""
    if not fault.injections:
        return []
    last = fault.injections[-1]
    if last.on != "node":
        return [last.rank]
    each = fault.worlds[0] // fault.nodes
    first = last.rank // each * each
    return list(range(first, first + each))


def _limit_seconds(answer: Answer, evidence: Evidence, expected: Expected) -> float | None:
    if answer in ("killed", "failed", "agent"):
        return DEAD_SECONDS
    if answer == "node":
        return LOST_NODE_SECONDS
    if answer == "link":
        return expected.timeout_seconds + LINK_SECONDS
    if answer == "stall":
        return HUNG_SECONDS + 3 * max((float(record["seconds"]) for record in evidence.metrics), default=0.0)
    return None


def _unfinished(evidence: Evidence) -> Iterator[str]:
    outcome = evidence.starts[-1].outcome
    if outcome is None or outcome["status"] != "done":
        said = outcome["reason"] if outcome is not None else "no outcome"
        yield f"not done after {len(evidence.starts)} starts: {said}"


def _other_bits(evidence: Evidence, expected: Expected) -> Iterator[str]:
    if expected.sha256 is not None and evidence.sha256 != expected.sha256:
        yield f"sha256 {(evidence.sha256 or 'none')[:12]}, where the undisturbed run has {expected.sha256[:12]}"


def _is_corruption(event: JsonObject) -> bool:
    return event["event"] == "fault" and event.get("what") in ("corrupt checkpoint", "missing checkpoint")


def _attempt_at(evidence: Evidence, time: float) -> int:
    starts = [event for event in evidence.events if event["event"] == "start" and event["time"] <= time]
    return int(starts[-1]["attempt"]) if starts else 0


def _range(ends: Sequence[int]) -> range:
    return range(ends[0], ends[1] + 1)
