"""Events as a story: many saves are one line, a resume says what was run again, unknown events are told as they are."""

from dataclasses import asdict

from seatrial.records import JsonObject
from seatrial.report.timeline import Entry, Replay, kept_steps, replays_of, timeline
from seatrial.rundir import RunDir
from tests.report.conftest import KILLED, SAVED, STEPS, step_record


def metrics(*attempts: range, shift: float = 0.0) -> list[JsonObject]:
    """Steps of each attempt; the losses of later attempts are off by ``shift``."""
    return [
        {**asdict(step_record(step, number)), "loss": 10.0 - step + (shift if number > 1 else 0.0)}
        for number, steps in enumerate(attempts, 1)
        for step in steps
    ]


def test_the_story_of_a_run_that_was_killed_once(run: RunDir) -> None:
    entries = timeline(run.read_events(), run.read_metrics())
    assert [(entry.kind, entry.title) for entry in entries] == [
        ("start", "Started"),
        ("progress", "500 rows ready"),
        ("progress", "Saved step 10"),
        ("trouble", "Started again, attempt 2"),
        ("progress", "Resumed from step 10"),
        ("progress", "Saved 3 times, steps 20 to 30"),
        ("end", "Done"),
    ]
    assert entries[0].seconds == 0.0 and entries[0].detail == "2 processes on cpu"
    assert entries[1].detail == "3 left out: too long"
    assert entries[2].detail == "training stood still for 4 ms"
    assert entries[4].detail == "steps 11 to 14 run again; every loss came out the same to the last digit"
    assert entries[5].detail == "training stood still for 25 ms (median), 30 ms at most"
    assert [entry.seconds for entry in entries] == sorted(entry.seconds for entry in entries)


def test_replays_are_found_for_each_attempt() -> None:
    found = replays_of(metrics(range(1, 15), range(11, 13), range(11, 31), shift=0.25))
    assert found == [Replay(2, 10, 11, 12, 0.25), Replay(3, 10, 11, 14, found[1].max_loss_difference)]
    assert found[1].max_loss_difference == 0.25  # against attempt 1 at steps 13 and 14, not against attempt 2
    assert replays_of(metrics(range(1, 11), range(11, 20))) == []
    assert replays_of([]) == []


def test_of_a_step_run_twice_the_later_record_is_kept(run: RunDir) -> None:
    kept = kept_steps(run.read_metrics())
    assert [record["step"] for record in kept] == list(range(1, STEPS + 1))
    assert [record["attempt"] for record in kept] == [1] * SAVED + [2] * (STEPS - SAVED)
    assert len(run.read_metrics()) == STEPS + KILLED - SAVED


def test_a_death_before_the_first_save_begins_anew() -> None:
    events: list[JsonObject] = [
        {"event": "start", "time": 100.0, "attempt": 1, "world_size": 1},
        {"event": "start", "time": 130.0, "attempt": 2, "world_size": 1},
    ]
    again = timeline(events, metrics(range(1, 4), range(1, 9)))[1]
    assert again == Entry(
        30.0, "trouble", "Started again, attempt 2", "1 process; nothing had been saved: from the beginning"
    )


def test_an_event_nobody_planned_for_is_told_with_all_it_holds() -> None:
    events: list[JsonObject] = [{"event": "clock_skew", "time": 5.0, "on_node": "n3", "seconds": 2}]
    assert timeline(events, []) == [Entry(0.0, "trouble", "Clock skew", "on node: n3; seconds: 2")]
    assert timeline([], []) == []
