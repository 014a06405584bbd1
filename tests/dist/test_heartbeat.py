"""A rank's file is read while it is written, by another process, and after its writer was killed at any moment."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.dist.heartbeat import (
    LANES,
    PHASES,
    SIZE,
    Heartbeat,
    heartbeat_file,
    join_heartbeat,
    opened_heartbeat,
    parse_heartbeat,
    read_heartbeat,
    read_local,
)


def test_what_is_said_is_read(tmp_path: Path) -> None:
    with opened_heartbeat(tmp_path, 3, 8, "g1", "node-a") as memory:
        heartbeat = Heartbeat(memory)
        before = time.monotonic()
        heartbeat.phase("step", 41)
        heartbeat.mark()
        beats = read_heartbeat(heartbeat_file(tmp_path, 3))
        assert beats is not None
        assert (beats.rank, beats.world_size, beats.pid, beats.generation, beats.host) == (
            3, 8, os.getpid(), "g1", "node-a",
        )  # fmt: skip
        assert beats.main is not None
        assert (beats.main.phase, beats.main.step, beats.main.marks) == ("step", 41, 1)
        assert before <= beats.main.began <= beats.main.heard <= time.monotonic()
        assert beats.writer is None
        with join_heartbeat(heartbeat_file(tmp_path, 3)) as shared:
            Heartbeat(shared, "writer").phase("save.write", 40)
        beats = read_heartbeat(heartbeat_file(tmp_path, 3))
        assert beats is not None and beats.writer is not None and beats.main is not None
        assert (beats.writer.phase, beats.main.phase) == ("save.write", "step")
    assert read_local(tmp_path, [2, 3]) == [beats]


def test_a_restarted_rank_begins_with_an_empty_file(tmp_path: Path) -> None:
    with opened_heartbeat(tmp_path, 0, 1, "before", "node") as memory:
        Heartbeat(memory).phase("step", 9)
    with opened_heartbeat(tmp_path, 0, 1, "after", "node"):
        (beats,) = read_local(tmp_path, [0])
        assert (beats.generation, beats.main) == ("after", None)


@given(said=st.lists(st.sampled_from(PHASES), min_size=2), torn=st.integers(0, 63), data=st.data())
def test_a_torn_record_gives_the_one_before_it(said: list[str], torn: int, data: st.DataObject) -> None:
    """The newest record is half written: some of its bytes are those that stood in its slot before."""
    memory = bytearray(SIZE)
    heartbeat = Heartbeat(memory, data.draw(st.sampled_from(LANES)))
    for step, phase in enumerate(said[:-1]):
        heartbeat.phase(phase, step)
    before = bytes(memory)
    heartbeat.phase(said[-1], len(said))
    after = bytes(memory)
    begin = next(at for at in range(SIZE) if before[at] != after[at]) // 64 * 64
    half = after[: begin + torn] + before[begin + torn :]
    beats = parse_heartbeat(b"seatrl01" + half[8:])
    assert beats is not None
    beat = beats.main or beats.writer or beats.pulse
    assert beat is not None
    expected = {(said[-2], len(said) - 2), (said[-1], len(said))}
    assert (beat.phase, beat.step) in expected
    if torn < 8:
        assert (beat.phase, beat.step) == (said[-2], len(said) - 2)


WRITER = """
import sys
from pathlib import Path
from seatrial.dist.heartbeat import Heartbeat, opened_heartbeat
with opened_heartbeat(Path(sys.argv[1]), 0, 1, "g", "h") as memory:
    heartbeat, step = Heartbeat(memory), 0
    heartbeat.phase("step", 0)
    print("ready", flush=True)
    while True:
        step += 1
        heartbeat.phase(("step", "save.stage")[step % 2], step)
"""


def test_reading_beside_a_writer_that_is_then_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        last = -1
        until = time.monotonic() + 0.5
        while time.monotonic() < until:
            beats = read_heartbeat(heartbeat_file(tmp_path, 0))
            assert beats is not None and beats.main is not None
            assert beats.main.step >= last
            assert beats.main.phase == ("step", "save.stage")[beats.main.step % 2]
            last = beats.main.step
        assert last > 1000
        os.kill(writer.pid, signal.SIGKILL)
    beats = read_heartbeat(heartbeat_file(tmp_path, 0))
    assert beats is not None and beats.main is not None
    assert (beats.pid, beats.main.pid) == (writer.pid, writer.pid)
    assert beats.main.step >= last


def test_saying_something_costs_microseconds() -> None:
    heartbeat = Heartbeat()
    began = time.perf_counter()
    for step in range(20_000):
        heartbeat.phase("step", step)
    assert (time.perf_counter() - began) / 20_000 < 20e-6


def test_an_unknown_phase_is_a_mistake_of_ours() -> None:
    with pytest.raises(KeyError):
        Heartbeat().phase("lunch")
