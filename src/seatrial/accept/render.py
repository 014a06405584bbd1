"""An acceptance as text for people and machines: terminal table, Markdown, JUnit XML, and the arithmetic of a limit."""

import math
from collections.abc import Sequence
from itertools import groupby
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from seatrial.accept.check import AnyCheck
from seatrial.accept.limits import Limits
from seatrial.accept.profiles import answers, find_profile
from seatrial.acceptance import Acceptance
from seatrial.records import CheckResult, Measurement, Verdict

if TYPE_CHECKING:
    from rich.table import Table

STYLES = {
    Verdict.PASS: "green",
    Verdict.WARN: "yellow",
    Verdict.FAIL: "bold red",
    Verdict.INCONCLUSIVE: "magenta",
    Verdict.SKIPPED: "dim",
}


def shown(number: Measurement) -> str:
    """``memory copy 37.4 GB/s ±0.8 (n=12)``."""
    spread = f" ±{number.spread:.2g} (n={number.n})" if number.n > 1 else ""
    return f"{number.name} {number.value:.4g} {number.unit}{spread}"


def table(checks: Sequence[AnyCheck], results: Sequence[CheckResult]) -> "Table":
    """What is known so far; the first check without a result is the one that runs.

    Neighbours that were skipped for one reason share a row.
    """
    from rich.markup import escape
    from rich.table import Table

    view = Table(show_edge=False, pad_edge=False)
    view.add_column("check", no_wrap=True)
    view.add_column("verdict", no_wrap=True)
    view.add_column("what was found", ratio=1)
    view.add_column("s", justify="right")
    for _, neighbours in groupby(results, key=lambda r: r.reason if r.verdict is Verdict.SKIPPED else r.check):
        first, *others = neighbours
        name = f"{first.check} ... {others[-1].check}" if others else first.check
        found = first.reason + (f"\nremedy: {first.remedy}" if first.remedy else "")
        style = STYLES[first.verdict]
        view.add_row(name, f"[{style}]{first.verdict}[/]", escape(found), f"{first.seconds:.1f}")
    waiting = checks[len(results) :]
    for check in waiting:
        running = check is waiting[0]
        view.add_row(check.name, "running" if running else "", escape(check.question) if running else "", "")
    return view


def markdown(acceptance: Acceptance) -> str:
    """The report as one Markdown page."""
    rows = [
        f"| {result.check} | {result.verdict} | {_cell(result.reason)} | {_cell(result.remedy)} |"
        for result in acceptance.checks
    ]
    numbers = [
        f"| {result.check} | {_cell(number.name)} | {number.value:.5g} | {number.unit} | {number.n} "
        f"| {number.spread:.3g} | {_cell(number.where)} |"
        for result in acceptance.checks
        for number in result.measurements
    ]
    facts = acceptance.provenance
    machine = ", ".join(facts.get("gpus") or []) or "no NVIDIA GPU"
    lines = [
        f"# Acceptance: {acceptance.verdict}",
        "",
        f"{facts.get('cpu')}, {machine}; seatrial {facts.get('seatrial')} at {facts.get('commit')}; "
        f"{acceptance.seconds:.0f} s.",
        "",
        "| check | verdict | what was found | remedy |",
        "|---|---|---|---|",
        *rows,
        "",
        *_demands(acceptance),
        "| check | measured | value | unit | n | spread | where |",
        "|---|---|---|---|---|---|---|",
        *numbers,
        "",
    ]
    return "\n".join(lines)


def _demands(acceptance: Acceptance) -> list[str]:
    """What the profile asks for, and what became of it."""
    if not acceptance.profile:
        return []
    profile = find_profile(acceptance.profile)
    rows = [
        f"| {_cell(ask.asked)} | {grade or 'not answered'} | {', '.join(ask.answered_by)} | {_cell(ask.note)} |"
        for ask, grade in answers(profile, acceptance)
    ]
    return [
        f"Graded by {profile.name}: {profile.source}.",
        "",
        "| asked for | verdict | checks | |",
        "|---|---|---|---|",
        *rows,
        "",
    ]


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def junit(acceptance: Acceptance) -> str:
    """JUnit XML: FAIL is a failure, INCONCLUSIVE an error, SKIPPED skipped; WARN passes with its text on system-out."""
    count = [result.verdict for result in acceptance.checks].count
    suite = ElementTree.Element(
        "testsuite",
        name="seatrial.accept",
        tests=str(len(acceptance.checks)),
        failures=str(count(Verdict.FAIL)),
        errors=str(count(Verdict.INCONCLUSIVE)),
        skipped=str(count(Verdict.SKIPPED)),
        time=f"{acceptance.seconds:.3f}",
    )
    tags = {Verdict.FAIL: "failure", Verdict.INCONCLUSIVE: "error", Verdict.SKIPPED: "skipped"}
    for result in acceptance.checks:
        group, _, name = result.check.partition(".")
        case = ElementTree.SubElement(suite, "testcase", classname=group, name=name, time=f"{result.seconds:.3f}")
        if tag := tags.get(result.verdict):
            ElementTree.SubElement(case, tag, message=result.reason).text = result.remedy
        said = [f"{result.verdict}: {result.reason}", *map(shown, result.measurements)]
        ElementTree.SubElement(case, "system-out").text = "\n".join(said)
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def explanation(check: AnyCheck, given: Limits) -> str:
    """Question, arithmetic and sources of the limits, and remedy of one check."""
    lines = [check.name, f"  question: {check.question}", f"  remedy:   {check.remedy}"]
    if not check.limits:
        lines.append("  limits:   none; the judge asks for consistency, not for a level")
    for limit in map(given.of, check.limits):
        levels = [
            f"{word} {level:.4g}"
            for word, level in (("fail below", limit.fail), ("warn below", limit.warn), ("healthy", limit.reference))
            if level is not None
        ]
        levels += [f"physical bound {limit.bound:.4g}"] if math.isfinite(limit.bound) else []
        recorded = "" if limit.fail is not None else " (recorded, not judged)"
        lines += [
            f"  limit:    {limit.name}: {', '.join(levels)} {limit.unit}{recorded}",
            f"    because {limit.arithmetic}",
            f"    source  {limit.source}",
        ]
    return "\n".join(lines)
