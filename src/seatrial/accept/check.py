"""What a check is: a question, the measurement that answers it, and the pure function that judges the answer."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import ValidationError

from seatrial.accept.facts import Facts
from seatrial.accept.limits import Limit, Limits
from seatrial.records import Frozen, JsonObject, Measurement, Verdict, final_verdict

F = TypeVar("F", bound=Facts)
Finding = tuple[Verdict, str]


class Request(Frozen):
    """What the runner asks for: one check, the seconds it may sample, and where it may write.

    ``patience_seconds``: after which nobody waits for the answer any more.
    """

    check: str
    seconds: float
    directory: Path
    expected_gpus: int = 0
    mounts: tuple[Path, ...] = ()
    patience_seconds: float = 180.0


@dataclass(frozen=True)
class Judgement:
    """What a judge concluded from the facts alone."""

    verdict: Verdict
    reason: str
    measurements: tuple[Measurement, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Check(Generic[F]):
    """One rung of the ladder. ``measure`` runs in a process of its own; ``judge`` is pure and takes what it found.

    ``share`` is the weight of this check when the budget of seconds is divided; 0 for what is read in an instant.
    ``startup_seconds`` are granted beyond what it samples: importing torch, starting ranks or a CUDA context from a
    cold disk.
    """

    name: str
    question: str
    remedy: str
    facts: type[F]
    measure: Callable[[Request], F]
    judge: Callable[[F, Limits], Judgement]
    limits: tuple[Limit, ...] = ()
    needs_gpus: int = 0
    share: float = 0.0
    startup_seconds: float = 60.0

    @property
    def group(self) -> str:
        return self.name.partition(".")[0]


AnyCheck = Check[Any]


def judge_recorded(check: AnyCheck, recorded: JsonObject, limits: Limits) -> Judgement:
    """Judge facts as they come from a process or a file; whatever is missing or ill-formed is INCONCLUSIVE."""
    try:
        facts = check.facts.model_validate(recorded)
    except ValidationError as error:
        missing = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors()[:3])
        return Judgement(Verdict.INCONCLUSIVE, f"the measurement is not complete: {missing}")
    return check.judge(facts, limits)


def conclude(
    findings: Iterable[Finding], measurements: Iterable[Measurement] = (), *, when_passed: str = ""
) -> Judgement:
    """The gravest finding decides and its texts are the reason. SKIPPED findings (recorded, not judged) only inform.

    ``when_passed`` replaces the texts of a PASS, where one line says as much as one for each part.
    """
    findings = list(findings)
    verdict = final_verdict(verdict for verdict, _ in findings)
    texts = [text for found, text in findings if found is verdict]
    if verdict is Verdict.PASS:
        texts = [when_passed] if when_passed else texts
        texts += [text for found, text in findings if found is Verdict.SKIPPED]
    sampled = tuple(number for number in measurements if number.n > 0)
    return Judgement(verdict, "; ".join(texts) or "nothing was measured", sampled)


def percentile(samples: Sequence[float], percent: float) -> float:
    """Nearest-rank percentile, NaN when there is no sample. With n < 100 the 99th is the largest sample."""
    if not samples:
        return math.nan
    ordered = sorted(samples)
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def measurement(name: str, samples: Sequence[float], unit: str, where: str) -> Measurement:
    """Median of the samples, with half the distance from the 5th to the 95th percentile as spread."""
    spread = (percentile(samples, 95) - percentile(samples, 5)) / 2
    return Measurement(name=name, value=percentile(samples, 50), unit=unit, n=len(samples), spread=spread, where=where)


MIN_SAMPLES = 5


def judge_rate(limit: Limit, samples: Sequence[float], where: str, *, per: float = 1.0) -> Finding:
    """Judge the median of the samples, divided by ``per`` (cores, say), by a limit; too few samples answer nothing."""
    if len(samples) < MIN_SAMPLES:
        return Verdict.INCONCLUSIVE, f"{where}: {len(samples)} samples of {limit.name}, at least {MIN_SAMPLES} needed"
    return limit.judge(percentile(samples, 50) / per, where)
