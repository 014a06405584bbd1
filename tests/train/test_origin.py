"""A run begins where it left off, again, or at another run's weights; and refuses to begin anywhere else."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from seatrial.dist.checkpoint.place import storage_of
from seatrial.errors import UsageError
from seatrial.model.adapter import WEIGHTS
from seatrial.rundir import RunDir
from seatrial.train.loop import train
from seatrial.train.origin import begin_again
from tests.small import settings_for


def adapter_of(run: Path, step: int) -> dict[str, torch.Tensor]:
    return load_file(run / "checkpoints" / f"step-{step:08d}" / "adapter" / WEIGHTS)


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_fresh_begins_again_and_keeps_the_old_run(harbour: Path) -> None:
    settings = settings_for(harbour, optimizer={"steps": 2})
    train(settings)
    other = settings_for(harbour, optimizer={"steps": 2, "learning_rate": 0.5})
    with pytest.raises(UsageError, match=r"learning_rate was 0.01, is 0.5; .*--fresh.*--fork"):
        train(other)
    train(other, fresh=True)
    assert RunDir(harbour / "run.before-1").read_settings()["optimizer"]["learning_rate"] == 0.01
    assert (harbour / "run.before-1" / "adapter" / WEIGHTS).is_file()
    assert [record["step"] for record in RunDir(harbour / "run").read_metrics()] == [1, 2]


def test_a_restart_of_the_launcher_does_not_begin_again(harbour: Path) -> None:
    settings = settings_for(harbour, optimizer={"steps": 1})
    train(settings)
    for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"):
        begin_again(RunDir(settings.run.dir), settings.checkpoint, {name: "1"})
    assert RunDir(settings.run.dir).read_outcome() is not None


def test_fresh_moves_checkpoints_that_are_elsewhere(harbour: Path) -> None:
    settings = settings_for(harbour, optimizer={"steps": 1}, checkpoint={"dir": str(harbour / "elsewhere")})
    train(settings)
    assert storage_of(RunDir(settings.run.dir)).committed() == ["step-00000001"]
    begin_again(RunDir(settings.run.dir), settings.checkpoint, {})
    assert (harbour / "elsewhere.before-1" / "step-00000001").is_dir()
    assert not settings.run.dir.exists()


def test_fresh_leaves_alone_what_is_no_run_or_in_use(harbour: Path) -> None:
    (harbour / "run").mkdir()
    (harbour / "run" / "thesis.tex").touch()
    settings = settings_for(harbour)
    with pytest.raises(UsageError, match="is not a run directory"):
        begin_again(RunDir(settings.run.dir), settings.checkpoint, {})
    (harbour / "run" / "settings.json").write_text("{}")
    with RunDir(settings.run.dir).locked(), pytest.raises(UsageError, match="in use by process"):
        begin_again(RunDir(settings.run.dir), settings.checkpoint, {})
    assert (harbour / "run" / "thesis.tex").is_file()


def test_fresh_does_not_move_object_storage(harbour: Path) -> None:
    url = (harbour / "bucket").as_uri()
    settings = settings_for(harbour, optimizer={"steps": 1}, checkpoint={"dir": url})
    train(settings)
    with pytest.raises(UsageError, match=r"cannot be moved; choose another checkpoint\.dir"):
        begin_again(RunDir(settings.run.dir), settings.checkpoint, {})


def test_a_fork_begins_with_the_weights_of_another_run(harbour: Path) -> None:
    train(settings_for(harbour, "first", optimizer={"steps": 3}))
    before = sorted(path.relative_to(harbour) for path in (harbour / "first").rglob("*"))
    settings = settings_for(harbour, "second", optimizer={"steps": 3, "learning_rate": 1e-3})
    train(settings, fork=harbour / "first")
    second = RunDir(harbour / "second")
    (fork,) = [event for event in second.read_events() if event["event"] == "fork"]
    assert fork["checkpoint"] == "step-00000003"
    assert [record["step"] for record in second.read_metrics()] == [1, 2, 3]
    assert next(event["step"] for event in second.read_events() if event["event"] == "save") == 0
    first_losses = [record["loss"] for record in RunDir(harbour / "first").read_metrics()]
    assert second.read_metrics()[0]["loss"] < first_losses[0] - 0.01
    assert sorted(path.relative_to(harbour) for path in (harbour / "first").rglob("*")) == before


def test_a_fork_starts_at_exactly_those_weights(harbour: Path) -> None:
    train(settings_for(harbour, "first", optimizer={"steps": 2}))
    settings = settings_for(harbour, "second", optimizer={"steps": 1}, checkpoint={"keep": 5})
    train(settings, fork=harbour / "first")
    assert same(adapter_of(harbour / "second", 0), adapter_of(harbour / "first", 2))
    train(settings, fork=harbour / "first")  # the same command, again: nothing is left to do
    assert [event["event"] for event in RunDir(harbour / "second").read_events()].count("fork") == 1


def test_a_fork_of_another_shape_or_of_nothing_is_refused(harbour: Path) -> None:
    train(settings_for(harbour, "first", optimizer={"steps": 1}))
    with pytest.raises(UsageError, match=r"a_GI is float32 \[4, 48\], this training has float32 \[8, 48\]"):
        train(settings_for(harbour, "wide", lora={"rank": 8}), fork=harbour / "first")
    with pytest.raises(UsageError, match="is the run itself"):
        train(settings_for(harbour, "fresh"), fork=harbour / "fresh")
    (harbour / "first" / "checkpoints" / "step-00000001" / "manifest.json").unlink()
    with pytest.raises(UsageError, match=r"no checkpoint to start from .*damaged: step-00000001"):
        train(settings_for(harbour, "third"), fork=harbour / "first")
