"""Fetching from a hub of our own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from seatrial.data.fetch import fetch, is_hub_name
from seatrial.errors import UsageError
from tests.hub import COMMIT, REPOS, hub


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with hub() as address:
        yield address


def seatrial(
    endpoint: str, cache: Path, *arguments: str | Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    env = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    env |= {"HF_ENDPOINT": endpoint, "HF_HOME": str(cache), "HF_HUB_DISABLE_XET": "1", "NO_PROXY": "127.0.0.1"}
    command = [sys.executable, "-m", "seatrial", "data", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=env | environment, timeout=120)


def test_a_model_is_staged_without_what_training_does_not_need(endpoint: str, tmp_path: Path) -> None:
    to = tmp_path / "shared"
    done = seatrial(endpoint, tmp_path / "cache", "fetch", "sea/pilot", "--to", to, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"name": "sea/pilot", "kind": "model", "revision": COMMIT, "path": str(to)}
    assert json.loads((to / "fetched.json").read_text())["revision"] == COMMIT
    assert (to / "model.safetensors").read_bytes() == b"w"
    assert not (to / "model.bin").exists()
    assert not (to / "original").exists()


def test_what_is_there_whole_is_not_fetched_again(endpoint: str, tmp_path: Path) -> None:
    nowhere, cache, to = "http://127.0.0.1:9", tmp_path / "cache", tmp_path / "shared"
    arguments = ("fetch", "sea/pilot", "--to", to, "--json")
    first = seatrial(endpoint, cache, *arguments)
    again = seatrial(nowhere, cache, *arguments)
    assert again.returncode == 0, again.stderr
    assert again.stdout == first.stdout
    assert seatrial(nowhere, cache, *arguments, "--revision", "main").returncode == 2  # a branch moves
    assert seatrial(nowhere, cache, "fetch", "sea/other", "--to", to).returncode == 2

    (to / "model.safetensors").write_bytes(b"")
    assert seatrial(nowhere, cache, *arguments).returncode == 2
    assert seatrial(endpoint, cache, *arguments).returncode == 0
    assert (to / "model.safetensors").read_bytes() == b"w"


def test_a_dataset_is_found_by_its_name_and_by_its_commit(endpoint: str, tmp_path: Path) -> None:
    for name in ("sea/tides", "datasets/sea/tides"):
        to = tmp_path / name.replace("/", "-")
        done = seatrial(endpoint, tmp_path / "cache", "fetch", name, "--to", to, "--revision", COMMIT)
        assert done.returncode == 0, done.stderr
        assert (to / "data" / "train.jsonl").read_bytes() == REPOS["datasets/sea/tides"]["data/train.jsonl"]


def test_rows_are_prepared_by_the_name_of_a_dataset_and_then_offline(endpoint: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    done = seatrial(endpoint, cache, "prepare", "--in", "sea/tides", "--out", tmp_path / "out", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["accepted"] == 1
    again = ("prepare", "--in", "sea/tides", "--out", tmp_path / "again", "--revision", COMMIT)
    done = seatrial("http://127.0.0.1:9", cache, *again, HF_HUB_OFFLINE="1")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "again" / "records.jsonl").read_bytes() == (tmp_path / "out" / "records.jsonl").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "environment", "message"),
    [
        (["sea/nosuch"], {}, "sea/nosuch: no such model or dataset on the hub"),
        (["sea/tides", "--revision", "v9"], {}, "sea/tides: has no revision v9"),
        (["datasets/sea/gated"], {}, "sea/gated: is gated; accept its terms on the hub and set HF_TOKEN"),
        (["sea/pilot"], {"HF_HUB_OFFLINE": "1"}, "sea/pilot: not in the local cache"),
        (["sea/pilot"], {"HF_ENDPOINT": "http://127.0.0.1:9"}, "sea/pilot: the hub cannot be read"),
    ],
)
def test_what_cannot_be_fetched_is_said_in_one_line(
    endpoint: str, tmp_path: Path, arguments: list[str], environment: dict[str, str], message: str
) -> None:
    done = seatrial(endpoint, tmp_path / "cache", "fetch", *arguments, "--to", tmp_path / "to", **environment)
    assert done.returncode == 2
    assert f"error: {message}" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_token_opens_what_is_gated(endpoint: str, tmp_path: Path) -> None:
    gated = ("fetch", "datasets/sea/gated", "--to", tmp_path / "to")
    assert seatrial(endpoint, tmp_path / "cache", *gated, HF_TOKEN="hf_x").returncode == 0
    assert (tmp_path / "to" / "rows.jsonl").exists()


@pytest.mark.parametrize("name", ["pilot", "a/b/c", "", "../x", "/tmp/x", "sea/pi lot"])
def test_what_is_no_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="not a hub name"):
        fetch(name, tmp_path / "to")


def test_names_are_told_from_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_hub_name("sea/tides")
    assert not is_hub_name("sea/tides.jsonl")
    assert not is_hub_name("tides")
    assert not is_hub_name("./sea/tides")
    (tmp_path / "sea" / "tides").mkdir(parents=True)
    assert not is_hub_name("sea/tides")
