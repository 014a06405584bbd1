"""A part against its own past: the same serial number, in earlier acceptances. Pure but for reading the files."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from seatrial.accept.check import percentile
from seatrial.accept.fleet import falls_behind
from seatrial.acceptance import Acceptance, Part, read_acceptance
from seatrial.records import CheckResult, Verdict, final_verdict

LEAST_EARLIER = 3
"""Acceptances of a part before its past says anything."""

Past = Mapping[tuple[str, str, str], Sequence[float]]
"""By serial number, check and name of measurement: the values of earlier acceptances, oldest first."""


def read_past(directory: Path) -> Past:
    """Every ``acceptance.json`` below a directory.

    Raises:
        UsageError: one of them cannot be read.
    """
    files = sorted(directory.rglob("acceptance.json"), key=lambda file: file.stat().st_mtime)
    return past_of(map(read_acceptance, files))


def past_of(acceptances: Iterable[Acceptance]) -> Past:
    past: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    for acceptance in acceptances:
        serials = _serials(acceptance.parts)
        for result in acceptance.checks:
            for number in result.measurements:
                if serial := serials.get(number.where):
                    past[serial, result.check, number.name].append(number.value)
    return past


def with_past(result: CheckResult, parts: Sequence[Part], past: Past) -> CheckResult:
    """The result, and a WARN where a rate of a part fell behind what the same part did before."""
    serials = _serials(parts)
    drifts = []
    for number in result.measurements:
        earlier = past.get((serials.get(number.where, ""), result.check, number.name), ())
        if not number.unit.endswith("/s") or len(earlier) < LEAST_EARLIER:
            continue
        lack = falls_behind(number.value, earlier)
        if lack is not None:
            before = f"{percentile(earlier, 50):.4g} {number.unit} in {len(earlier)} earlier acceptances"
            drifts.append(
                f"{number.where}, serial {serials[number.where]}: {number.name} {lack:.1%} below its own {before}"
            )
    if not drifts:
        return result
    verdict = final_verdict((result.verdict, Verdict.WARN))
    reason = "; ".join([*([result.reason] if result.verdict is not Verdict.PASS else []), *drifts])
    remedy = result.remedy or "compare with its earlier reports; a part that fades goes into a ticket before it fails"
    return result.model_copy(update={"verdict": verdict, "reason": reason, "remedy": remedy})


def _serials(parts: Sequence[Part]) -> dict[str, str]:
    return {part.where: part.serial for part in parts if part.serial}
