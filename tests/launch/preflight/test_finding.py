"""How findings are told."""

import pytest

from seatrial.errors import UsageError
from seatrial.launch.preflight.finding import as_text, doubtful, failed, passed, refuse, skipped

ALL = (
    passed("nodes", "2 are ready"),
    doubtful("data", "is long", "set data.length to 9"),
    failed("claim", "is Lost", "`kubectl describe pvc x`"),
    failed("secret", "is not set", "export HF_TOKEN=..."),
    skipped("image", "cannot be asked"),
)


def test_a_line_for_each_and_one_for_its_fix() -> None:
    assert as_text(ALL).splitlines() == [
        "PASS    nodes: 2 are ready",
        "WARN    data: is long",
        "        fix: set data.length to 9",
        "FAIL    claim: is Lost",
        "        fix: `kubectl describe pvc x`",
        "FAIL    secret: is not set",
        "        fix: export HF_TOKEN=...",
        "SKIPPED image: cannot be asked",
    ]


def test_failures_alone_refuse_and_all_of_them_are_named() -> None:
    refuse(finding for finding in ALL if finding.verdict != "FAIL")
    with pytest.raises(UsageError) as error:
        refuse(ALL)
    assert str(error.value) == "nothing was sent: mend claim, secret"
