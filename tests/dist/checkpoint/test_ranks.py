"""What was saved on any number of ranks loads on any other, from a directory and from object storage."""

import os
import subprocess
import sys
from pathlib import Path

import fsspec
import pytest
import torch
from safetensors.torch import load_file

from seatrial.dist.checkpoint.storage import open_storage
from seatrial.dist.checkpoint.work import verify
from seatrial.rundir import RunDir
from tests.dist.checkpoint.ranks import values

SEALED = Path(__file__).parent / "sealed"


def live(folder: Path, place: str, layout: str, *sizes: int) -> None:
    RunDir(folder).prepare()
    done = subprocess.run(
        [sys.executable, "-m", "tests.dist.checkpoint.ranks", str(folder), place, layout, *map(str, sizes)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SEALED)},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize(("layout", "sizes"), [("shard", (4, 1, 5)), ("replicate", (3, 2))])
def test_any_size_loads_what_any_other_saved(tmp_path: Path, layout: str, sizes: tuple[int, ...]) -> None:
    place = tmp_path / "checkpoints"
    live(tmp_path, str(place), layout, *sizes)
    last = len(sizes)
    assert sorted(path.name for path in place.iterdir()) == [f"step-{step:08d}" for step in (last - 1, last)]
    adapter = load_file(place / f"step-{last:08d}" / "adapter" / "adapter_model.safetensors")
    assert torch.equal(torch.cat([adapter["first"], adapter["second"]]), values(last)["weight/adapter"])
    saves = [event for event in RunDir(tmp_path).read_events() if event["event"] == "save"]
    assert [save["step"] for save in saves] == list(range(1, last + 1))


def test_object_storage_without_a_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SEALED))
    fsspec.register_implementation("sealed", "sealed_storage.Sealed", clobber=True)
    live(tmp_path, f"sealed://{tmp_path}/bucket", "shard", 2, 3)
    storage = open_storage(f"sealed://{tmp_path}/bucket")
    names = storage.committed()
    assert [name[:13] for name in names] == ["step-00000002", "step-00000001"]
    for name in names:
        verify(storage, name)
    assert storage.leftovers() == []
