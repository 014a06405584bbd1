"""A checkpoint is whole, or it is not loaded; and no failed save stops a training."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint.hf_storage import HuggingFaceStorageReader

from seatrial.dist.checkpoint.manifest import MANIFEST
from seatrial.dist.checkpoint.storage import Directory
from seatrial.dist.checkpoint.work import verify
from seatrial.errors import IntegrityError, UsageError
from seatrial.rundir import RunDir
from tests.dist.checkpoint.conftest import Opener, save, state_of


def names(run: RunDir) -> list[str]:
    return sorted(path.name for path in run.checkpoints.iterdir())


def test_what_is_saved_comes_back(opened: Opener) -> None:
    state = state_of(0.0)
    checkpoints = opened(state)
    assert save(checkpoints, state, 1, 2) == ""
    for tensor in state.values():
        tensor.zero_()
    assert checkpoints.load_latest() == {"step": 2}
    assert all(torch.equal(state[name], expected) for name, expected in state_of(2.0).items())


def test_torch_reads_it_too(opened: Opener, run: RunDir) -> None:
    """A second reader of the same bytes, which shares no code with ours."""
    state = state_of(0.0)
    save(opened(state), state, 3)
    read = state_of(0.0)
    reader = HuggingFaceStorageReader(str(run.checkpoints / "step-00000003"))
    state_dict_loader.load(read, storage_reader=reader)
    assert all(torch.equal(read[name], expected) for name, expected in state_of(3.0).items())


def test_nothing_saved_loads_nothing(opened: Opener) -> None:
    state = state_of(7.0)
    assert opened(state).load_latest() is None
    assert float(state["step/a"]) == 7.0


def test_a_save_is_a_copy_of_the_moment(opened: Opener) -> None:
    state = state_of(1.0)
    checkpoints = opened(state)
    checkpoints.stage(1)
    checkpoints.copied.hold()
    for tensor in state.values():
        tensor.fill_(99.0)
    checkpoints.write({"step": 1})
    assert checkpoints.wait() == ""
    assert checkpoints.load_latest() == {"step": 1}
    assert float(state["step/a"]) == 1.0


def flip_a_bit(directory: Path) -> None:
    file = shard(directory)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def zero_a_block(directory: Path) -> None:
    file = shard(directory)
    content = bytearray(file.read_bytes())
    content[1000:1512] = bytes(512)
    file.write_bytes(content)


def truncate(directory: Path) -> None:
    file = shard(directory)
    file.write_bytes(file.read_bytes()[:-100])


def lose_a_shard(directory: Path) -> None:
    shard(directory).unlink()


def lose_the_manifest(directory: Path) -> None:
    (directory / MANIFEST).unlink()


def tear_the_manifest(directory: Path) -> None:
    manifest = directory / MANIFEST
    manifest.write_text(manifest.read_text()[:40])


def take_another_manifest(directory: Path) -> None:
    other = directory.parent / "step-00000001" / MANIFEST
    (directory / MANIFEST).write_bytes(other.read_bytes())


def shard(directory: Path) -> Path:
    (file,) = directory.glob("*.safetensors")
    return file


DAMAGES = [
    flip_a_bit,
    zero_a_block,
    truncate,
    lose_a_shard,
    lose_the_manifest,
    tear_the_manifest,
    take_another_manifest,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_found_set_aside_and_the_one_before_is_loaded(opened: Opener, run: RunDir, damage) -> None:  # type: ignore[no-untyped-def]
    state = state_of(0.0)
    checkpoints = opened(state)
    save(checkpoints, state, 1, 2)
    damage(run.checkpoints / "step-00000002")
    with pytest.raises(IntegrityError, match="step-00000002"):
        verify(Directory(run.checkpoints), "step-00000002")
    assert checkpoints.load_latest() == {"step": 1}
    assert float(state["step/a"]) == 1.0
    assert names(run) == ["step-00000001", "step-00000002.corrupt"]
    (fault,) = [event for event in run.read_events() if event["event"] == "fault"]
    assert (fault["what"], fault["checkpoint"]) == ("corrupt checkpoint", "step-00000002")
    assert "step-00000002" in fault["reason"]


def test_when_none_is_valid_nothing_is_made_up(opened: Opener, run: RunDir) -> None:
    state = state_of(0.0)
    checkpoints = opened(state)
    save(checkpoints, state, 1, 2)
    for name in ("step-00000001", "step-00000002"):
        flip_a_bit(run.checkpoints / name)
    for _ in range(2):
        with pytest.raises(IntegrityError, match=r"no checkpoint is valid.*begin again with --fresh"):
            checkpoints.load_latest()


def test_a_lost_storage_is_not_taken_for_a_fresh_start(
    opened: Opener, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seatrial.dist.checkpoint.find.STALE_LISTING_SECONDS", 0.1)
    state = state_of(0.0)
    checkpoints = opened(state)
    save(checkpoints, state, 1)
    (run.checkpoints / "step-00000001").rename(run.path / "elsewhere")
    with pytest.raises(IntegrityError, match="is its storage mounted"):
        checkpoints.load_latest()


def test_a_listing_that_lags_behind_is_waited_for(opened: Opener, run: RunDir) -> None:
    """As a shared file system shows another node's rename: later."""
    state = state_of(0.0)
    checkpoints = opened(state)
    save(checkpoints, state, 1, 2)
    unseen = run.checkpoints / "step-00000002"
    unseen.rename(run.path / "unseen")
    command = f"import time, os; time.sleep(0.5); os.rename({str(run.path / 'unseen')!r}, {str(unseen)!r})"
    with subprocess.Popen([sys.executable, "-c", command]):
        assert checkpoints.load_latest() == {"step": 2}


def test_only_the_newest_are_kept(opened: Opener, run: RunDir) -> None:
    state = state_of(0.0)
    save(opened(state, keep=2), state, 1, 2, 3, 4)
    assert names(run) == ["step-00000003", "step-00000004"]


def test_what_does_not_verify_is_not_counted(opened: Opener, run: RunDir) -> None:
    state = state_of(0.0)
    checkpoints = opened(state, keep=2)
    save(checkpoints, state, 1, 2)
    flip_a_bit(run.checkpoints / "step-00000002")
    save(checkpoints, state, 3)
    assert names(run) == ["step-00000001", "step-00000002.corrupt", "step-00000003"]
    save(checkpoints, state, 4)
    assert names(run) == ["step-00000002.corrupt", "step-00000003", "step-00000004"]


def test_leftovers_of_a_killed_save_are_cleaned_up(opened: Opener, run: RunDir) -> None:
    for name in ("step-00000009.tmp-00c0ffee", "step-00000003.removing"):
        (run.checkpoints / name / "adapter").mkdir(parents=True)
    (run.checkpoints / "step-00000001.corrupt").mkdir()
    opened(state_of(0.0))
    assert names(run) == ["step-00000001.corrupt"]


def test_a_committed_checkpoint_is_never_overwritten(opened: Opener, run: RunDir) -> None:
    state = state_of(0.0)
    checkpoints = opened(state)
    save(checkpoints, state, 1)
    before = (run.checkpoints / "step-00000001" / MANIFEST).read_bytes()
    assert "never overwritten" in save(checkpoints, state, 1)
    assert (run.checkpoints / "step-00000001" / MANIFEST).read_bytes() == before
    assert names(run) == ["step-00000001"]


def test_a_save_that_fails_is_told_and_the_next_one_succeeds(opened: Opener, run: RunDir) -> None:
    state = state_of(0.0)
    checkpoints = opened(state)
    save(checkpoints, state, 1)
    run.checkpoints.rename(run.path / "aside")
    run.checkpoints.write_text("a file where the directory should be")
    failure = save(checkpoints, state, 2)
    assert "Not a directory" in failure
    run.checkpoints.unlink()
    (run.path / "aside").rename(run.checkpoints)
    assert save(checkpoints, state, 3) == ""
    assert checkpoints.load_latest() == {"step": 3}
    events = {event["event"]: event for event in run.read_events()}
    assert events["save_failed"]["step"] == 2
    assert "step 2 was not saved" in events["alarm"]["reason"]


def test_a_writer_killed_at_work_is_named_and_replaced(opened: Opener, run: RunDir) -> None:
    state = state_of(0.0)
    checkpoints = opened(state)
    save(checkpoints, state, 1)
    os.kill(checkpoints.writer_pid, signal.SIGSTOP)  # so that it cannot be done before it is killed
    checkpoints.stage(2)
    checkpoints.write({"step": 2})
    time.sleep(0.1)
    os.kill(checkpoints.writer_pid, signal.SIGKILL)
    assert "was killed by SIGKILL" in checkpoints.wait()
    assert save(checkpoints, state, 3) == ""
    assert names(run) == ["step-00000001", "step-00000003"]


def test_a_writer_that_is_dead_is_replaced_before_it_is_missed(opened: Opener) -> None:
    state = state_of(0.0)
    checkpoints = opened(state)
    save(checkpoints, state, 1)
    dead = checkpoints.writer_pid
    os.kill(dead, signal.SIGKILL)
    while "Z (zombie)" not in Path(f"/proc/{dead}/status").read_text():
        time.sleep(0.001)
    assert save(checkpoints, state, 2) == ""
    assert checkpoints.writer_pid != dead


def test_a_writer_that_hangs_is_given_up(opened: Opener, run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    state = state_of(0.0)
    checkpoints = opened(state)
    save(checkpoints, state, 1)
    monkeypatch.setattr(checkpoints._saver, "_stall_seconds", 0.5)
    os.kill(checkpoints.writer_pid, signal.SIGSTOP)
    began = time.monotonic()
    assert "took no data for 0.5 s" in save(checkpoints, state, 2)
    assert time.monotonic() - began < 5
    assert save(checkpoints, state, 3) == ""


def test_the_writer_dies_with_its_trainer(run: RunDir) -> None:
    script = (
        "import os, sys, signal; from seatrial.dist.checkpoint.process import WriterProcess\n"
        "buffer = os.memfd_create('staged'); os.ftruncate(buffer, 4096)\n"
        "writer = WriterProcess(buffer, 4096, sys.argv[1]); writer.wait_until_warm(); print(writer.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ran = subprocess.run([sys.executable, "-c", script, str(run.checkpoints)], capture_output=True, text=True)
    pid = int(ran.stdout)
    deadline = time.monotonic() + 5
    while Path(f"/proc/{pid}").exists() and "Z (zombie)" not in Path(f"/proc/{pid}/status").read_text():
        assert time.monotonic() < deadline, "the writing process outlived its trainer"
        time.sleep(0.01)


def test_signals_to_the_job_leave_the_writer_alone(opened: Opener) -> None:
    state = state_of(0.0)
    checkpoints = opened(state)
    save(checkpoints, state, 1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
        os.kill(checkpoints.writer_pid, number)
    assert save(checkpoints, state, 2) == ""


def test_another_training_is_refused_with_the_difference(opened: Opener) -> None:
    state = state_of(0.0)
    save(opened(state, identity={"settings": {"optimizer": {"learning_rate": 0.1}}}), state, 1)
    other = opened(state, identity={"settings": {"optimizer": {"learning_rate": 0.2}}})
    with pytest.raises(UsageError, match=r"settings\.optimizer\.learning_rate was 0\.1, is 0\.2; .*--fresh.*--fork"):
        other.load_latest()


def test_another_type_or_shape_is_refused(opened: Opener, run: RunDir) -> None:
    state = state_of(0.0)
    save(opened(state), state, 1)
    narrow = {"weight/a": torch.zeros(300, 7, dtype=torch.bfloat16), "step/a": torch.tensor(0.0)}
    with pytest.raises(UsageError, match=r"weight/a is float32 \[300, 7\], this training has bfloat16"):
        opened(narrow).load_latest()
    with pytest.raises(UsageError, match="holds no weight/b"):
        opened({**state, "weight/b": torch.zeros(1)}).load_latest()
    assert names(run) == ["step-00000001"]


def test_rolling_back_sets_what_is_newer_aside(opened: Opener, run: RunDir) -> None:
    state = state_of(0.0)
    checkpoints = opened(state, keep=5)
    save(checkpoints, state, 1, 2, 3)
    checkpoints.stage(4)  # not known to be sound: dropped
    assert checkpoints.roll_back(2) == {"step": 2}
    assert float(state["step/a"]) == 2.0
    assert names(run) == ["step-00000001", "step-00000002", "step-00000003.rolled-back"]
    assert save(checkpoints, state, 3) == ""
    assert checkpoints.roll_back(0) is None
    assert "step-00000003" in names(run)
    assert float(state["step/a"]) == 3.0
