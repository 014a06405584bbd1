"""Storage that takes nothing stops no training, until the last save, which would lose work."""

import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from seatrial.dist.checkpoint.checkpoints import Checkpoints
from seatrial.dist.checkpoint.storage import Directory
from seatrial.errors import Preempted, SeatrialError
from seatrial.rundir import RunDir
from seatrial.train.loop import train
from tests.small import settings_for


def events(run: RunDir, kind: str) -> list[dict[str, object]]:
    return [event for event in run.read_events() if event["event"] == kind]


def test_training_goes_on_and_the_last_save_fails_the_run(harbour: Path) -> None:
    (harbour / "file").touch()
    settings = settings_for(
        harbour, optimizer={"steps": 12}, checkpoint={"every_steps": 4, "dir": str(harbour / "file" / "under")}
    )
    run = RunDir(settings.run.dir)
    with pytest.raises(SeatrialError, match=r"the last checkpoint, of step 12, was not saved: .*Not a directory"):
        train(settings)
    assert [record["step"] for record in run.read_metrics()] == list(range(1, 13))
    assert len(events(run, "save_failed")) >= 2
    assert all("there is no checkpoint yet" in str(event["reason"]) for event in events(run, "alarm"))
    outcome = run.read_outcome()
    assert outcome is not None
    assert (outcome["status"], outcome["exit_code"]) == ("failed", 70)


@contextmanager
def full_disk_after_the_first_save(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Until a save has failed, the kernel gives the writing process no file larger than a block."""
    pids: list[int] = []
    stage = Checkpoints.stage

    def noting(self: Checkpoints, step: int) -> None:
        stage(self, step)
        pids.append(self.writer_pid)

    def limit() -> None:
        while not events(run, "save") and not done.wait(0.002):
            pass
        resource.prlimit(pids[-1], resource.RLIMIT_FSIZE, (1024, resource.RLIM_INFINITY))
        monkeypatch.setattr(Directory, "free_bytes", lambda _: 1024)
        while not events(run, "save_failed") and not done.wait(0.002):
            pass
        resource.prlimit(pids[-1], resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    monkeypatch.setattr(Checkpoints, "stage", noting)
    done = threading.Event()
    thread = threading.Thread(target=limit)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def test_a_disk_that_fills_and_is_emptied(harbour: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = settings_for(harbour, optimizer={"steps": 40}, checkpoint={"every_steps": 4})
    run = RunDir(settings.run.dir)
    with full_disk_after_the_first_save(run, monkeypatch):
        train(settings)
    saved = [event["step"] for event in events(run, "save")]
    (failed, *_) = [event["step"] for event in events(run, "save_failed")]
    assert min(saved) < failed < 40  # type: ignore[operator, type-var]
    assert saved[-1] == 40
    (alarm, *_) = events(run, "alarm")
    assert "File too large" in str(alarm["reason"])
    assert "has 0.00102 MB free: " in str(alarm["reason"])
    assert "MB are missing" in str(alarm["reason"])
    assert f"the checkpoint of step {min(saved)} stays" in str(alarm["reason"])  # type: ignore[type-var]
    assert run.read_outcome() is not None
    assert not Directory(run.checkpoints).leftovers()


def test_a_stop_whose_save_fails_says_so(harbour: Path) -> None:
    (harbour / "file").touch()
    settings = settings_for(
        harbour, optimizer={"steps": 3000}, checkpoint={"every_steps": 1000, "dir": str(harbour / "file" / "under")}
    )
    run = RunDir(settings.run.dir)

    def stop() -> None:
        while len(run.read_metrics()) < 2:
            time.sleep(0.01)
        run.stop_file.touch()

    thread = threading.Thread(target=stop)
    thread.start()
    with pytest.raises(Preempted, match=r"could not save step \d+ of 3000: .*Not a directory.*\(stop file\)"):
        train(settings)
    thread.join()


def test_saves_by_the_clock(harbour: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Steps and clock agree on no step, and nothing else differs."""
    monkeypatch.setattr("seatrial.dist.checkpoint.schedule.FIRST_SECONDS", 0.05)
    settings = settings_for(
        harbour, optimizer={"steps": 30}, checkpoint={"every_steps": None, "mtbf_hours": 0.0001, "keep": 100}
    )
    train(settings)
    saved = [event["step"] for event in events(RunDir(settings.run.dir), "save")]
    assert len(saved) > 1
    assert saved[-1] == 30
