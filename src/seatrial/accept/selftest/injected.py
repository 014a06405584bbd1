"""What became of an injected fault, and what injecting takes."""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from seatrial.accept.catalogue import find
from seatrial.accept.check import Judgement, judge_recorded
from seatrial.accept.limits import Limits
from seatrial.records import Frozen, JsonObject, Verdict

RECORDED, PROCESS, NAMESPACE = "recorded", "process", "namespace"
SAYS_NO = (Verdict.FAIL, Verdict.WARN)


class Caught(Frozen):
    """``caught``: the verdict is no PASS; ``blamed_right``: the reason names the culprit, and nobody else."""

    name: str
    caught: bool
    blamed_right: bool
    how: str
    verdict: str
    said: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Fault:
    name: str
    inject: Callable[[Path], Caught]


def caught(name: str, judgement: Judgement, how: str, *names: str, innocent: Sequence[str] = ()) -> Caught:
    """Whether a judgement says no, and names the culprit by all of ``names`` and none of ``innocent``."""
    said = judgement.reason
    right = all(word in said for word in names) and not any(word in said for word in innocent)
    return Caught(
        name=name,
        caught=judgement.verdict in SAYS_NO,
        blamed_right=judgement.verdict in SAYS_NO and right,
        how=how,
        verdict=judgement.verdict,
        said=said,
    )


def recorded(check: str) -> Any:
    """Facts of a healthy H100, as JSON that may be changed."""
    lines = files("seatrial").joinpath("assets/accept/h100.jsonl").read_text().splitlines()
    return next(record["facts"] for record in map(json.loads, lines) if record["check"] == check)


def judged(check: str, facts: JsonObject) -> Judgement:
    return judge_recorded(find(check), facts, Limits())


@contextmanager
def environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
