"""Two acceptances side by side: what got worse, part by part. Pure."""

from typing import Literal

from seatrial.accept.fleet import LEAST_EFFECT
from seatrial.acceptance import Acceptance
from seatrial.records import Frozen, Measurement, Verdict

Change = Literal["worse", "better", "same", "only in the first", "only in the second"]
SEVERITY = (Verdict.PASS, Verdict.WARN, Verdict.INCONCLUSIVE, Verdict.FAIL)
"""From mild to grave; SKIPPED is none of these, and stands for no answer."""


class Difference(Frozen):
    """One check, or one rate of one part, in both."""

    what: str
    first: str
    second: str
    change: Change


class Comparison(Frozen):
    """``worse`` when any difference is."""

    worse: bool
    differences: tuple[Difference, ...]


def compare(first: Acceptance, second: Acceptance) -> Comparison:
    """Verdicts by check, and rates by part: by serial number where both know it, else by place.

    A rate changed when the medians differ by more than 5 % and by more than both spreads together.
    """
    found = [*_verdicts(first, second), *_rates(first, second)]
    return Comparison(worse=any(one.change == "worse" for one in found), differences=tuple(found))


def _verdicts(first: Acceptance, second: Acceptance) -> list[Difference]:
    before = {result.check: result for result in first.checks}
    after = {result.check: result for result in second.checks}
    differences = []
    for check in dict.fromkeys([*before, *after]):
        a, b = before.get(check), after.get(check)
        change: Change = "same"
        if a is None or b is None:
            change = "only in the first" if b is None else "only in the second"
        elif a.verdict is b.verdict:
            change = "same"
        elif Verdict.SKIPPED in (a.verdict, b.verdict):
            change = "only in the first" if b.verdict is Verdict.SKIPPED else "only in the second"
        else:
            change = "worse" if SEVERITY.index(b.verdict) > SEVERITY.index(a.verdict) else "better"
        shown = [f"{one.verdict}: {one.reason}" if one else "" for one in (a, b)]
        differences.append(Difference(what=check, first=shown[0], second=shown[1], change=change))
    return differences


def _rates(first: Acceptance, second: Acceptance) -> list[Difference]:
    before, after = _by_part(first), _by_part(second)
    differences = []
    for key in dict.fromkeys([*before, *after]):
        a, b = before.get(key), after.get(key)
        if a is None or b is None:
            continue
        gap = b.value - a.value
        change: Change = "same"
        if abs(gap) > LEAST_EFFECT * a.value and abs(gap) > a.spread + b.spread:
            change = "worse" if gap < 0 else "better"
        shown = [f"{one.value:.4g} ±{one.spread:.2g} {one.unit}" for one in (a, b)]
        part, check, name = key
        differences.append(Difference(what=f"{check}, {part}: {name}", first=shown[0], second=shown[1], change=change))
    return differences


def _by_part(acceptance: Acceptance) -> dict[tuple[str, str, str], Measurement]:
    """Rates by part, check and name; the host's own name is left out, so that machines can be compared too."""
    serials = {part.where: f"serial {part.serial}" for part in acceptance.parts if part.serial}

    def part(where: str) -> str:
        plain = where.replace(acceptance.host, "host") if acceptance.host else where
        return serials.get(where, plain)

    return {
        (part(number.where), result.check, number.name): number
        for result in acceptance.checks
        for number in result.measurements
        if number.unit.endswith("/s")
    }
