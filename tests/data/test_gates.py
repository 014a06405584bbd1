from collections import Counter

import pytest

from seatrial.data.conversation import Rejection
from seatrial.data.convert import Outcome
from seatrial.data.gates import FLOORS, ROWS_TO_JUDGE, Tally, complaints
from seatrial.data.reason import UNWANTED, Reason
from seatrial.data.sources import CONVERTERS


def tally(rows: int, accepted: int, calls: int, reason: Reason = Reason.MALFORMED_CALL) -> Tally:
    """``accepted`` rows of one target each."""
    rejected = Counter({reason.value: rows - accepted})
    return Tally(rows, accepted, 0, accepted, accepted, calls, +rejected)


def test_a_sound_preparation_passes() -> None:
    for source in FLOORS:
        assert complaints({source: tally(1000, 990, 985)}) == []


def test_too_few_rows_read_fails_and_says_how_to_go_on() -> None:
    (line,) = complaints({"glaive": tally(200, 120, 60)})
    assert "60.0% of 200 rows" in line
    assert "malformed_call (80)" in line
    assert "--min-yield 0.60" in line
    assert complaints({"glaive": tally(200, 120, 60)}, min_yield=0.60) == []


def test_a_reader_that_loses_the_calls_and_keeps_the_refusals_fails() -> None:
    (line,) = complaints({"glaive": tally(1000, 1000, 0)})
    assert "0.0% of 1000 assistant turns" in line
    assert "--min-call-share 0.00" in line
    assert complaints({"glaive": tally(1000, 1000, 0)}, min_call_share=0.0) == []


def test_chats_say_nothing_about_calls() -> None:
    chats = Tally(rows=500, accepted=500, targets=900, targets_with_tools=0)
    assert complaints({"glaive": chats}) == []


def test_what_was_asked_to_be_left_out_does_not_count_against_the_yield() -> None:
    for reason in UNWANTED:
        assert complaints({"glaive": tally(200, 20, 20, reason)}) == []


def test_a_handful_of_rows_is_not_judged() -> None:
    assert complaints({"glaive": tally(ROWS_TO_JUDGE - 1, 1, 0)}) == []
    assert complaints({"glaive": tally(ROWS_TO_JUDGE, 1, 1)}) != []


def test_one_bad_source_is_named_among_good_ones() -> None:
    lines = complaints({"glaive": tally(500, 500, 400), "xlam": tally(500, 500, 200)})
    assert len(lines) == 1
    assert lines[0].startswith("xlam")


def test_every_source_has_a_floor() -> None:
    assert FLOORS.keys() == (CONVERTERS.keys() - {"auto"}) | {"unknown"}


def test_a_tally_counts_rows_turns_and_kinds_of_repairs() -> None:
    counts = Tally()
    repairs = ("default_dropped: f.a", "default_dropped: f.b", "python_types")
    counts.add(Outcome(1, "x:1", "a", "xlam", b"{}", has_tools=True, targets=2, targets_with_call=1, repairs=repairs))
    counts.add(Outcome(2, "x:2", "b", "xlam", b"{}", targets=2))
    counts.add(Outcome(3, "x:3", "c", "xlam", rejection=Rejection("bad_tools")))
    assert counts.summary() == {
        "rows": 3,
        "accepted": 2,
        "rejected": {"bad_tools": 1},
        "held_out": 0,
        "share_with_call": pytest.approx(0.25),
        "targets": 4,
        "targets_with_tools": 2,
        "targets_with_call": 1,
        "repairs": {"default_dropped": 1, "python_types": 1},
    }
