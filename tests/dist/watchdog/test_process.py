"""Real processes under torchrun meet real faults; what the watchdog says and does about them is what is judged."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from seatrial.dist.heartbeat import RankBeats, read_local
from seatrial.dist.watchdog.nodes import read_report
from seatrial.dist.watchdog.process import LOOK_SECONDS
from seatrial.dist.watchdog.sight import process_state
from seatrial.errors import IntegrityError
from seatrial.records import JsonObject
from seatrial.rundir import RunDir

WORKER = "tests.dist.watchdog.worker"
HANG_SECONDS = 1.0


class Job:
    """Two workers under torchrun, which starts them again."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.run, self.attempt = folder, RunDir(folder / "run"), 1
        launch = [sys.executable, "-m", "tests.dist.launched", "--nproc-per-node=2", "--rdzv-backend=c10d"]
        self.log = (folder / "log").open("w")
        self.agent = subprocess.Popen(
            [*launch, "--rdzv-endpoint=localhost:0", "--max-restarts=9", "--", WORKER, str(folder), str(HANG_SECONDS)],
            stdout=self.log,
            stderr=self.log,
        )

    def at_step(self, step: int, attempt: int | None = None) -> list[RankBeats]:
        """Wait until both ranks have come that far in this attempt."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self.agent.poll() is None:
            ours = f"{attempt or self.attempt}-"
            beats = [b for b in read_local(self.run.path, range(2)) if b.generation.startswith(ours)]
            if len(beats) == 2 and all(b.main is not None and b.main.step >= step for b in beats):
                return beats
            time.sleep(0.02)
        raise AssertionError((self.folder / "log").read_text()[-3000:])

    def under_watch(self) -> list[RankBeats]:
        """Wait until the watchdog of this attempt has seen how long a step takes."""
        beats = self.at_step(1)
        deadline = time.monotonic() + 60
        while self.generation_told() != beats[0].generation:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(4 * LOOK_SECONDS)
        return beats

    def generation_told(self) -> str:
        """Of the attempt that the watchdog told of last."""
        try:
            report = read_report(self.run.node_report(0).read_text())
        except FileNotFoundError:
            return ""
        return report.generation if report is not None and report.views else ""

    def said_after(self, since: float, event: str) -> JsonObject:
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for record in self.run.read_events():
                if record["time"] >= since and record["event"] == event:
                    return record
            time.sleep(0.02)
        raise AssertionError(f"no {event}: {self.run.read_events()[-3:]}")

    def harm(self, rank: int, number: signal.Signals, event: str) -> tuple[JsonObject, float]:
        """Send a signal to a rank; what the watchdog said, and how many seconds later. The job is going on again."""
        beats = self.under_watch()
        since = time.time()
        os.kill(beats[rank].pid, number)
        said = self.said_after(since, event)
        self.attempt += 1
        self.at_step(1)
        assert said["ranks"] == [rank]
        assert said["attempt"] == self.attempt - 1
        for before in beats:
            assert not process_state(before.pid), "nobody of the old attempt lives on"
        return said, said["time"] - since


@contextmanager
def job(folder: Path) -> Iterator[Job]:
    started = Job(folder)
    try:
        yield started
    finally:
        if started.agent.poll() is None:
            started.agent.kill()  # its workers and their watchdog end with it
        started.agent.wait()
        started.log.close()


def test_each_fault_is_noticed_in_time_named_and_survived(tmp_path: Path) -> None:
    with job(tmp_path) as j:
        said, seconds = j.harm(1, signal.SIGKILL, "fault")
        assert seconds < 2
        assert "was killed in step" in said["reason"]

        said, seconds = j.harm(0, signal.SIGSTOP, "stall")
        assert seconds < 10
        assert "stopped (SIGSTOP)" in said["reason"]

        said, seconds = j.harm(1, signal.SIGWINCH, "stall")
        assert seconds < 10
        assert "keeps the interpreter's lock, at" in said["reason"]
        stacks = j.run.path / said["stacks"]
        assert "_keep_the_lock" in (stacks / "rank-00001.txt").read_text()
        assert "all_reduce" in (stacks / "rank-00000.txt").read_text()

        said, seconds = j.harm(1, signal.SIGIO, "fault")
        assert (said["what"], said["reason"]) == ("failed", "row 17 is torn")

        # A stopped launcher hinders nobody: it is made to go on when it is needed.
        beats = j.under_watch()
        since = time.time()
        j.agent.send_signal(signal.SIGSTOP)
        assert f"torchrun (process {j.agent.pid}) is stopped" in j.said_after(since, "alarm")["reason"]
        assert all(process_state(b.pid) for b in beats), "work goes on without it"
        j.harm(1, signal.SIGKILL, "fault")

        # A killed one takes its workers along, and the outcome is written.
        beats = j.under_watch()
        since = time.time()
        j.agent.kill()
        assert "has ended, and its ranks with it" in j.said_after(since, "failed")["reason"]
        assert not any(process_state(b.pid) for b in beats)


def test_the_outcome_is_that_of_the_rank_that_failed_first(tmp_path: Path) -> None:
    """The first rank only sees that a peer is gone; what it says is corrected."""
    with job(tmp_path) as j:
        os.kill(j.at_step(1)[1].pid, signal.SIGIO)
        since = time.time() - 1
        j.said_after(since, "failed")
        failed = [event for event in j.run.read_events() if event["event"] == "failed"]
        assert failed[-1]["reason"] == "row 17 is torn"
        outcome = j.run.read_outcome()
        if outcome is not None:  # not yet removed by the attempt that follows
            assert outcome["exit_code"] == IntegrityError.exit_code
        j.at_step(1, attempt=2)
        j.agent.send_signal(signal.SIGSTOP)
        (tmp_path / "finish").touch()
        assert j.agent.wait(60) == 0, "made to go on, it hears that its ranks are done"
        outcome = j.run.read_outcome()
        assert outcome is not None
        assert outcome["status"] == "done"
