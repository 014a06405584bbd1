from pathlib import Path

from seatrial.data.reason import UNWANTED, Reason, Unfaithful, excerpt

REFERENCE = Path(__file__).parents[2] / "docs" / "reference" / "data-formats.md"


def test_every_reason_is_documented() -> None:
    text = REFERENCE.read_text()
    assert [reason for reason in Reason if f"`{reason}`" not in text] == []
    assert set(Reason) > UNWANTED


def test_an_unfaithful_row_carries_its_rejection() -> None:
    rejection = Unfaithful(Reason.BAD_TOOLS, "why").rejection
    assert (rejection.reason, rejection.detail) == ("bad_tools", "why")


def test_an_excerpt_is_one_short_line() -> None:
    assert excerpt("a\n\n b") == "a b"
    assert excerpt({"a": 1}) == "{'a': 1}"
    assert len(excerpt("x" * 10**6)) == 120
