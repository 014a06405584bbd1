"""What was looked at, what came of it, and what to do."""

from collections.abc import Iterable

from seatrial.errors import UsageError
from seatrial.records import Frozen, Verdict


class Finding(Frozen):
    """``remedy`` ends in something to type or to change; a FAIL always has one.

    SKIPPED: cannot be asked here and now, with the reason; the node looks again when the job starts.
    """

    what: str
    verdict: Verdict
    reason: str
    remedy: str = ""


def passed(what: str, reason: str) -> Finding:
    return Finding(what=what, verdict=Verdict.PASS, reason=reason)


def failed(what: str, reason: str, remedy: str) -> Finding:
    return Finding(what=what, verdict=Verdict.FAIL, reason=reason, remedy=remedy)


def doubtful(what: str, reason: str, remedy: str) -> Finding:
    return Finding(what=what, verdict=Verdict.WARN, reason=reason, remedy=remedy)


def skipped(what: str, reason: str, remedy: str = "") -> Finding:
    return Finding(what=what, verdict=Verdict.SKIPPED, reason=reason, remedy=remedy)


def failures(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    return tuple(finding for finding in findings if finding.verdict is Verdict.FAIL)


def as_text(findings: Iterable[Finding]) -> str:
    """One line each, and a second with the fix where there is one to make."""
    lines = []
    for finding in findings:
        lines.append(f"{finding.verdict:<8}{finding.what}: {finding.reason}")
        if finding.remedy and finding.verdict is not Verdict.PASS:
            lines.append(f"{'':<8}fix: {finding.remedy}")
    return "\n".join(lines)


def refuse(findings: Iterable[Finding]) -> None:
    """
    Raises:
        UsageError: some are a FAIL; names them. Reasons and fixes are those of :func:`as_text`.
    """
    if found := failures(findings):
        raise UsageError(f"nothing was sent: mend {', '.join(finding.what for finding in found)}")
