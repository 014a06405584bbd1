"""Accept a healthy machine again and again: how often is it accused?

    python bench/accept_healthy.py --runs 100 --busy 2 --out healthy-runs.json

Each run is the whole ladder, in which checks of GPUs that are not there are skipped, and tournaments of two, three and
four ranks on the processor. ``--busy`` starts processes that do nothing but take its time meanwhile; with them goes
``--no-ladder``, since a check that finds a busy processor slow is right. OUT is written anew after every run, and a
second start goes on where the first was stopped. A check that says the same of this machine in every run speaks of the
machine; one that changes its mind to FAIL or WARN is a false alarm. Exit code 1: there was one.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from seatrial.accept import catalogue, runner
from seatrial.accept.selftest.faults import play_ranks
from seatrial.provenance import provenance
from seatrial.records import Verdict, write_json

ALARMS = (Verdict.FAIL, Verdict.WARN)


TOURNAMENTS = (2, 3, 4)
"""Ranks. The fewer, the harder to tell who is slow."""


def one_run(budget_seconds: float | None) -> dict[str, Any]:
    """Verdicts by check, with the reason where it is no PASS. Without a budget, of the tournaments alone."""
    with tempfile.TemporaryDirectory(prefix="seatrial-healthy-") as scratch:
        start = time.monotonic()
        verdicts = {}
        if budget_seconds is not None:
            accepted = runner.accept(Path(scratch) / "ladder", budget_seconds=budget_seconds)
            verdicts = {result.check: (result.verdict, result.reason) for result in accepted.checks}
        ladder_seconds = time.monotonic() - start
        for ranks in TOURNAMENTS:
            played = play_ranks(Path(scratch), ranks=ranks)
            verdicts[f"tournament of {ranks}"] = (played.verdict, played.reason)
        return {
            "seconds": round(time.monotonic() - start, 1),
            "ladder_seconds": round(ladder_seconds, 1),
            "verdicts": {name: verdict for name, (verdict, _) in verdicts.items()},
            "said": {n: text for n, (verdict, text) in verdicts.items() if verdict not in ("PASS", "SKIPPED")},
        }


def summary(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """What was said of the machine in every run, and what only in some. Pure."""
    names = dict.fromkeys(name for run in runs for name in run["verdicts"])
    steady = {
        name: runs[0]["verdicts"].get(name)
        for name in names
        if len({run["verdicts"].get(name) for run in runs}) == 1 and runs[0]["verdicts"].get(name) in ALARMS
    }
    false_alarms = [
        {"run": number, "check": name, "verdict": verdict, "said": run["said"][name]}
        for number, run in enumerate(runs)
        for name, verdict in run["verdicts"].items()
        if verdict in ALARMS and name not in steady
    ]
    unanswered = [
        {"run": number, "check": name, "said": run["said"][name]}
        for number, run in enumerate(runs)
        for name, verdict in run["verdicts"].items()
        if verdict == Verdict.INCONCLUSIVE
    ]
    return {"runs": len(runs), "false_alarms": false_alarms, "inconclusive": unanswered, "in_every_run": steady}


@contextmanager
def busy(processes: int) -> Iterator[None]:
    started = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in started:
            process.kill()


def main() -> int:
    arguments = argparse.ArgumentParser(description="Accept a healthy machine again and again.")
    arguments.add_argument("--runs", type=int, default=100)
    arguments.add_argument("--budget", default="5s", help="of each ladder")
    arguments.add_argument("--no-ladder", action="store_true", help="tournaments alone")
    arguments.add_argument("--busy", type=int, default=0, help="processes that take the processor's time meanwhile")
    arguments.add_argument("--out", type=Path, default=Path("healthy-runs.json"))
    given = arguments.parse_args()
    runs: list[dict[str, Any]] = json.loads(given.out.read_text())["each"] if given.out.exists() else []
    with busy(given.busy):
        while len(runs) < given.runs:
            runs.append(one_run(None if given.no_ladder else catalogue.seconds_of(given.budget)))
            report = summary(runs)
            write_json(given.out, {**report, "busy": given.busy, "provenance": provenance(), "each": runs})
            alarms, unanswered = len(report["false_alarms"]), len(report["inconclusive"])
            said = f"{runs[-1]['seconds']} s, {alarms} false alarms, {unanswered} inconclusive so far"
            print(f"run {len(runs)} of {given.runs}: {said}", file=sys.stderr)
    return 1 if summary(runs)["false_alarms"] else 0


if __name__ == "__main__":
    sys.exit(main())
