"""Who is late is concluded from what ranks were last seen doing, at any number of them."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.dist.heartbeat import PHASES
from seatrial.dist.watchdog.nodes import NodeReport, merge
from seatrial.dist.watchdog.verdict import (
    LIMIT_SECONDS,
    LOST_SECONDS,
    STEPS_LEARNT,
    RankView,
    StepTimes,
    collectives_begun,
    find_death,
    find_stall,
    is_compiling,
    limit_seconds,
    main_stack,
    waits_for_others,
    who_is_late,
)

MEDIAN, HANG = 2.0, 7.0
LIMIT = 3 * MEDIAN + HANG


def waiting(rank: int, idle: float = LIMIT + 1.0, step: int = 40, **more: object) -> RankView:
    """In the collective at the end of step 40, as the ranks of eight to a node are."""
    view = RankView(rank, f"node-{rank // 8}", 1000 + rank, "step", step, 2, idle)
    return replace(view, **more)  # type: ignore[arg-type]


def ranks(count: int, late: dict[int, RankView]) -> list[RankView]:
    return [late.get(rank, waiting(rank)) for rank in range(count)]


@pytest.mark.parametrize(
    ("late", "why"),
    [
        (waiting(300, marks=0), "rank 300 (process 1300 on node-37) is late: in step 40 for 14.0 s"),
        (waiting(300, idle=16.0, step=39), "rank 300 (process 1300 on node-37) is late: in step 39 for 16.0 s"),
        (waiting(300, state="T"), "stopped (SIGSTOP)"),
        (
            waiting(300, pulse_seconds=13.0, stack="File step.py line 3 in f"),
            "keeps the interpreter's lock, at step.py",
        ),
        (waiting(300, phase="data", step=-1, idle=3700.0), "in data for 3700.0 s"),
        (waiting(300, phase="save.stage", step=40, idle=301.0), "in save.stage 40 for 301.0 s"),
        (waiting(300, marks=1, state="D"), "waiting in the kernel for a disk or a device"),
    ],
)
def test_the_late_rank_of_512_is_named(late: RankView, why: str) -> None:
    found = find_stall(ranks(512, {300: late}), MEDIAN, HANG)
    assert found is not None
    assert found.ranks == [300]
    assert why in found.reason


def test_a_rank_whose_stack_does_not_wait_is_late_among_equals() -> None:
    wait = "File /lib/torch/distributed/distributed_c10d.py line 3007 in all_reduce"
    views = [waiting(rank, stack=wait) for rank in range(512)]
    views[77] = replace(views[77], stack="File /app/rows.py line 9 in read")
    found = find_stall(views, MEDIAN, HANG)
    assert found is not None
    assert found.ranks == [77]
    assert "at /app/rows.py line 9 in read" in found.reason


def test_a_gpu_that_has_begun_fewer_collectives_is_late_among_equals() -> None:
    views = [waiting(rank, collectives=900) for rank in range(16)]
    views[5] = replace(views[5], collectives=899)
    found = find_stall(views, MEDIAN, HANG)
    assert found is not None
    assert found.ranks == [5]


def test_a_whole_silent_node_is_named_in_few_words() -> None:
    gone = {rank: waiting(rank, silent_seconds=20.0) for rank in range(8, 16)}
    found = find_stall(ranks(512, gone), MEDIAN, HANG)
    assert found is not None
    assert found.ranks == list(range(8, 16))
    assert "rank 8 (process 1008 on node-1) was last heard of in step 40" in found.reason
    assert "its node has been silent for 20 s: down, or cut off" in found.reason
    assert found.reason.endswith("and 5 more ranks")


def test_a_silent_node_is_judged_by_what_those_do_that_wait_for_it() -> None:
    """It was lost in the second after it had told that it compiles, which may take half an hour."""
    lost = waiting(8, phase="compile", step=-1, idle=15.0, silent_seconds=LIMIT + 1.0)
    found = find_stall(ranks(16, {8: lost}), MEDIAN, HANG)
    assert found is not None
    assert found.ranks == [8]
    assert find_stall(ranks(16, {8: lost, 3: waiting(3, idle=0.5)}), MEDIAN, HANG) is None, "others get further"
    assert find_stall(ranks(16, {8: replace(lost, silent_seconds=11.0)}), MEDIAN, HANG) is None, "heard of lately"


@pytest.mark.parametrize(("phase", "step"), [("load", -1), ("save.write", 40), ("evaluate", 40)])
def test_a_silent_node_is_not_waited_for_as_long_as_a_slow_phase_may_take(phase: str, step: int) -> None:
    def seconds(idle: float, silent: float) -> list[RankView]:
        views = [waiting(rank, phase=phase, step=step, idle=idle) for rank in range(16)]
        views[8] = replace(views[8], silent_seconds=silent)
        return views

    assert find_stall(seconds(300.0, LOST_SECONDS - 1.0), MEDIAN, HANG) is None
    assert find_stall(seconds(LOST_SECONDS - 1.0, 300.0), MEDIAN, HANG) is None
    found = find_stall(seconds(300.0, LOST_SECONDS + 1.0), MEDIAN, HANG)
    assert found is not None
    assert found.ranks == [8]


def test_nobody_is_blamed_when_all_wait_alike() -> None:
    found = find_stall(ranks(512, {}), MEDIAN, HANG)
    assert found is not None
    assert found.culprits == ()
    assert "all 512 ranks wait in step 40 for 14.0 s" in found.reason


def test_those_that_wait_for_a_slow_phase_are_not_hung() -> None:
    """Half an hour in the step, because rank 0 evaluates: nothing is wrong until that takes too long."""
    views = [waiting(rank, idle=1700.0) for rank in range(16)]
    views[0] = replace(views[0], phase="evaluate", step=40, idle_seconds=1700.0)
    assert find_stall(views, MEDIAN, HANG) is None
    views[0] = replace(views[0], idle_seconds=1801.0)
    found = find_stall(views, MEDIAN, HANG)
    assert found is not None
    assert found.ranks == [0]


def test_a_stopped_rank_gets_further_in_no_phase() -> None:
    views = [waiting(rank, phase="load", step=-1, idle=30.0) for rank in range(8)]
    assert find_stall(views, None, HANG) is None
    views[3] = replace(views[3], state="T")
    found = find_stall(views, None, HANG)
    assert found is not None
    assert found.ranks == [3]


def test_compiling_a_kernel_anew_is_not_hanging() -> None:
    views = [waiting(0, marks=0, stack="File /lib/torch/_inductor/codecache.py line 1 in compile"), waiting(1)]
    assert is_compiling(views[0].stack)
    assert find_stall(views, MEDIAN, HANG) is None
    assert find_stall([replace(views[0], stack=""), views[1]], MEDIAN, HANG) is not None


def test_a_killed_rank_is_dead_and_one_that_said_so_is_not() -> None:
    views = ranks(512, {7: waiting(7, state=""), 8: waiting(8, state="", phase="done", step=-1)})
    found = find_death(views)
    assert found is not None
    assert found.ranks == [7]
    assert found.reason == "rank 7 (process 1007 on node-0) was killed in step 40"
    assert find_death(ranks(512, {8: waiting(8, state="", phase="failed")})) is None


@given(
    idles=st.lists(st.floats(0, LIMIT), min_size=1, max_size=64),
    phases=st.lists(st.sampled_from(PHASES[:-2]), min_size=64, max_size=64),
    step=st.integers(0, 3),
)
def test_nobody_within_its_limit_is_ever_accused(idles: list[float], phases: list[str], step: int) -> None:
    views = [
        waiting(rank, idle=min(idle, limit_seconds(phase, MEDIAN, HANG)), phase=phase, step=step)
        for rank, (idle, phase) in enumerate(zip(idles, phases, strict=False))
    ]
    assert find_stall(views, MEDIAN, HANG) is None


@given(count=st.integers(2, 600), data=st.data())
def test_one_that_is_behind_is_always_the_one(count: int, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, count - 1))
    marks = data.draw(st.integers(0, 1))
    views = ranks(count, {rank: waiting(rank, marks=marks)})
    assert [view.rank for view in who_is_late(views)] == [rank]


def test_limits_are_learnt_from_the_run() -> None:
    times = StepTimes()
    began = 100.0
    for step in range(STEPS_LEARNT):
        assert times.median is None
        times.saw(step, began)
        times.saw(step, began)  # looked at twice
        began += 2.0
    times.saw(STEPS_LEARNT + 2, began + 4.0)  # two steps went by unseen
    assert times.median == 2.0
    times.saw(1, began)  # rolled back
    assert times.median == 2.0
    assert limit_seconds("step", times.median, 7.0) == 13.0
    assert limit_seconds("step", None, 7.0) == LIMIT_SECONDS["step"]
    assert set(LIMIT_SECONDS) == set(PHASES)


DUMP = """\
Thread 0x00007f895ce846c0 (most recent call first):
  File "/lib/python3.11/threading.py", line 982 in run
  File "/lib/python3.11/threading.py", line 1002 in _bootstrap

Current thread 0x00007f895d9c6b80 (most recent call first):
  File "/lib/torch/distributed/distributed_c10d.py", line 3007 in all_reduce
  File "/src/seatrial/train/step.py", line 151 in queue_step
  File "/src/seatrial/__main__.py", line 6 in <module>
"""


def test_the_main_thread_is_told_from_others() -> None:
    stack = main_stack(DUMP)
    assert stack.splitlines() == [
        "File /lib/torch/distributed/distributed_c10d.py line 3007 in all_reduce",
        "File /src/seatrial/train/step.py line 151 in queue_step",
        "File /src/seatrial/__main__.py line 6 in <module>",
    ]
    assert waits_for_others(stack)
    assert not waits_for_others("File /src/seatrial/data/pack.py line 3 in pack_tensors")
    assert main_stack(DUMP + DUMP.replace("line 151", "line 99")).splitlines()[1].endswith("line 99 in queue_step")
    assert main_stack("") == ""


def test_collectives_are_counted_over_groups() -> None:
    dump = {
        "entries": [
            {"process_group": ("0", "default_pg"), "collective_seq_id": 4, "state": "completed"},
            {"process_group": ("0", "default_pg"), "collective_seq_id": 5, "state": "scheduled"},
            {"process_group": ("1", "shard"), "collective_seq_id": 9, "state": "started"},
        ]
    }
    assert collectives_begun(dump) == 13
    assert collectives_begun({}) == -1


def test_what_a_node_told_grows_older() -> None:
    views = merge({1: (50.0, NodeReport("3", "node-1", 9, (waiting(8, idle=1.0),)))}, now=62.0)
    assert [(view.idle_seconds, view.silent_seconds) for view in views] == [(13.0, 12.0)]
