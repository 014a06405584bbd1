"""The result of an acceptance, as ``acceptance.json`` holds it."""

from typing import Literal

from seatrial.records import CheckResult, Frozen, JsonObject, Verdict


class Acceptance(Frozen):
    """``verdict`` grades all of ``checks``; ``seconds`` is the whole duration."""

    schema_version: Literal[1] = 1
    verdict: Verdict
    checks: tuple[CheckResult, ...]
    provenance: JsonObject
    seconds: float
