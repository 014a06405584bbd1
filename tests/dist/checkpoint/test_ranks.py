"""What was saved on any number of ranks loads on any other, from a directory and from object storage."""

import json
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
SIZES = {"shard": (4, 1, 5), "replicate": (3, 2), "sealed": (2, 3)}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A run's folder for each chain of worlds, all lived by one process, which imports torch once."""
    folders = {name: tmp_path_factory.mktemp(name) for name in SIZES}
    chains = []
    for name, folder in folders.items():
        RunDir(folder).prepare()
        place = f"sealed://{folder}/bucket" if name == "sealed" else str(folder / "checkpoints")
        layout = "shard" if name == "sealed" else name
        chains.append({"folder": str(folder), "place": place, "layout": layout, "sizes": SIZES[name]})
    done = subprocess.run(
        [sys.executable, "-m", "tests.dist.checkpoint.ranks", json.dumps(chains)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SEALED)},
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return folders


@pytest.mark.parametrize("layout", ["shard", "replicate"])
def test_any_size_loads_what_any_other_saved(folders: dict[str, Path], layout: str) -> None:
    """The ranks themselves compare what they load; here is what they leave behind."""
    place, last = folders[layout] / "checkpoints", len(SIZES[layout])
    assert sorted(path.name for path in place.iterdir()) == [f"step-{step:08d}" for step in (last - 1, last)]
    adapter = load_file(place / f"step-{last:08d}" / "adapter" / "adapter_model.safetensors")
    assert torch.equal(torch.cat([adapter["first"], adapter["second"]]), values(last)["weight/adapter"])
    saves = [event for event in RunDir(folders[layout]).read_events() if event["event"] == "save"]
    assert [save["step"] for save in saves] == list(range(1, last + 1))


def test_object_storage_without_a_rename(folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SEALED))
    fsspec.register_implementation("sealed", "sealed_storage.Sealed", clobber=True)
    storage = open_storage(f"sealed://{folders['sealed']}/bucket")
    names = storage.committed()
    assert [name[:13] for name in names] == ["step-00000002", "step-00000001"]
    for name in names:
        verify(storage, name)
    assert storage.leftovers() == []


def test_a_rank_that_fails_leaves_though_another_never_answers(tmp_path: Path) -> None:
    RunDir(tmp_path).prepare()
    done = subprocess.run(
        [sys.executable, "-m", "tests.dist.checkpoint.lost", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
