"""A checkpoint is whole, or it is not loaded."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from seatrial.dist.checkpoint import MANIFEST, Checkpoints, verify
from seatrial.dist.world import World, joined_world
from seatrial.errors import IntegrityError, SeatrialError
from seatrial.rundir import RunDir


@pytest.fixture
def world() -> Iterator[World]:
    with joined_world(timeout_seconds=20) as joined:
        yield joined


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path)
    run.prepare()
    return run


def state_of(value: float) -> dict[str, Tensor]:
    return {"weight/a": torch.full((300, 7), value), "step/a": torch.tensor(value)}


def saved(run: RunDir, world: World, *steps: int, keep: int = 5) -> Checkpoints:
    checkpoints = Checkpoints(run, world, keep=keep)
    for step in steps:
        checkpoints.save(step, state_of(step), {"step": step})
    checkpoints.wait()
    return checkpoints


def test_what_is_saved_comes_back(run: RunDir, world: World) -> None:
    checkpoints = saved(run, world, 1, 2)
    state = state_of(0.0)
    assert checkpoints.load_latest(state) == {"step": 2}
    assert all(bool((state[name] == expected).all()) for name, expected in state_of(2.0).items())


def test_nothing_saved_loads_nothing(run: RunDir, world: World) -> None:
    state = state_of(7.0)
    assert Checkpoints(run, world, keep=2).load_latest(state) is None
    assert float(state["step/a"]) == 7.0


def test_a_save_is_a_copy_of_the_moment(run: RunDir, world: World) -> None:
    checkpoints = Checkpoints(run, world, keep=2)
    state = state_of(1.0)
    checkpoints.save(1, state, {"step": 1})
    for tensor in state.values():
        tensor.fill_(99.0)
    checkpoints.wait()
    assert checkpoints.load_latest(state) == {"step": 1}
    assert float(state["step/a"]) == 1.0


def flip_a_bit(directory: Path) -> None:
    file = largest_shard(directory)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def zero_a_block(directory: Path) -> None:
    file = largest_shard(directory)
    content = bytearray(file.read_bytes())
    content[1000:1512] = bytes(512)
    file.write_bytes(content)


def truncate(directory: Path) -> None:
    file = largest_shard(directory)
    file.write_bytes(file.read_bytes()[:-100])


def lose_a_shard(directory: Path) -> None:
    largest_shard(directory).unlink()


def lose_the_manifest(directory: Path) -> None:
    (directory / MANIFEST).unlink()


def tear_the_manifest(directory: Path) -> None:
    manifest = directory / MANIFEST
    manifest.write_text(manifest.read_text()[:40])


def largest_shard(directory: Path) -> Path:
    return max(directory.glob("*.distcp"), key=lambda file: file.stat().st_size)


@pytest.mark.parametrize(
    "damage", [flip_a_bit, zero_a_block, truncate, lose_a_shard, lose_the_manifest, tear_the_manifest]
)
def test_damage_is_found_set_aside_and_the_one_before_is_loaded(run: RunDir, world: World, damage) -> None:  # type: ignore[no-untyped-def]
    checkpoints = saved(run, world, 1, 2)
    newest = checkpoints.committed()[0]
    damage(newest)
    with pytest.raises(IntegrityError, match="step-00000002"):
        verify(newest)
    state = state_of(0.0)
    assert checkpoints.load_latest(state) == {"step": 1}
    assert float(state["step/a"]) == 1.0
    assert (run.checkpoints / "step-00000002.corrupt").is_dir()
    assert [event["what"] for event in run.read_events() if event["event"] == "fault"] == ["corrupt checkpoint"]


def test_only_the_newest_are_kept(run: RunDir, world: World) -> None:
    checkpoints = saved(run, world, 1, 2, 3, 4, keep=2)
    assert [path.name for path in checkpoints.committed()] == ["step-00000004", "step-00000003"]


def test_a_leftover_of_a_killed_save_is_no_checkpoint(run: RunDir, world: World) -> None:
    (run.checkpoints / "step-00000009.tmp").mkdir()
    checkpoints = saved(run, world, 1)
    assert [path.name for path in checkpoints.committed()] == ["step-00000001"]
    assert not (run.checkpoints / "step-00000009.tmp").exists()


def test_a_committed_checkpoint_is_never_overwritten(run: RunDir, world: World) -> None:
    checkpoints = saved(run, world, 1)
    checkpoints.save(1, state_of(5.0), {"step": 1})
    with pytest.raises(IntegrityError, match="never overwritten"):
        checkpoints.wait()
    state = state_of(0.0)
    assert Checkpoints(run, world, keep=2).load_latest(state) == {"step": 1}
    assert float(state["step/a"]) == 1.0


def test_a_failed_write_is_told(run: RunDir, world: World) -> None:
    checkpoints = Checkpoints(run, world, keep=2)
    run.checkpoints.rmdir()
    run.checkpoints.write_text("a file where the directory should be")
    checkpoints.save(1, state_of(1.0), {"step": 1})
    with pytest.raises(SeatrialError, match=r"step-00000001: not written: .*Not a directory"):
        checkpoints.wait()
