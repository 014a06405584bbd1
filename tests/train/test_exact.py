"""One sha256 of the adapters, and one curve, at every number of processes, through kills and changes of size."""

import hashlib
from pathlib import Path
from typing import Any

import pytest

from seatrial.model.adapter import WEIGHTS
from seatrial.rundir import RunDir
from seatrial.train.exact import CHEAP_UP_TO_TOKENS, choose_exactness
from tests.small import settings_for, write_config, write_model, write_rows
from tests.worlds import run_worlds

# Five divides no six packs a step. Every adapter drops, so masks must not depend on the rank either.
NARROW: dict[str, Any] = {
    "optimizer": {"steps": 4, "packs_per_step": 6},
    "lora": {"rank": 4, "dropout": 0.1},
    "model": {"compute": "bfloat16"},
    "checkpoint": {"every_steps": 2},
}
WIDE: dict[str, Any] = {"optimizer": {"steps": 12, "packs_per_step": 6}, "checkpoint": {"every_steps": 2}}
SIZES = (1, 2, 3, 5)


def training(folder: Path, name: str, processes: int, sections: dict[str, Any]) -> dict[str, Any]:
    settings = settings_for(folder, name, **sections)
    return {"config": write_config(settings, folder / f"{name}.yaml"), "processes": processes}


def sha256(run: Path) -> str:
    return hashlib.sha256((run / "adapter" / WEIGHTS).read_bytes()).hexdigest()


def curve(run: Path) -> list[tuple[float, float]]:
    """Loss and gradient norm of each step; of a step that was run twice, both times the same."""
    records: dict[int, tuple[float, float]] = {}
    for record in RunDir(run).read_metrics():
        told = (record["loss"], record["grad_norm"])
        assert records.setdefault(record["step"], told) == told, f"step {record['step']} came out in another way"
    return [records[step] for step in sorted(records)]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All trainings of this file, in one process that forks theirs."""
    folder = tmp_path_factory.mktemp("exact")
    write_model(folder / "model")
    write_rows(folder / "data")
    todo = [training(folder, f"exact-{n}", n, NARROW) for n in SIZES]
    todo += [training(folder, "shard", 2, NARROW | {"parallel": {"plan": "shard"}})]
    todo += [training(folder, f"float-{n}", n, NARROW | {"run": {"exact": "off"}}) for n in (1, 2)]
    todo += [training(folder, "undisturbed", 1, WIDE)]
    chain = [(4, 3), (2, 7), (3, None)]
    todo += [{**training(folder, "chain", n, WIDE), "kill_at": kill_at} for n, kill_at in chain]
    run_worlds(todo)
    return folder


def test_one_sha256_and_one_curve_on_one_to_five_processes(runs: Path) -> None:
    """In bfloat16, with dropout, and with the base in pieces."""
    exact = [runs / f"exact-{n}" for n in SIZES] + [runs / "shard"]
    assert len({sha256(run) for run in exact}) == 1
    assert all(curve(run) == curve(exact[0]) for run in exact)
    promised = [event["promise"] for event in RunDir(exact[0]).read_events() if event["event"] == "exact"]
    assert promised == ["same bits on any number of GPUs"]


def test_without_exactness_the_same_trainings_differ(runs: Path) -> None:
    assert sha256(runs / "float-1") != sha256(runs / "float-2")


def test_killed_and_resumed_at_other_sizes_it_is_the_undisturbed_run(runs: Path) -> None:
    """In float32, on 4, 2 and 3 processes, each killed but the last."""
    assert sha256(runs / "chain") == sha256(runs / "undisturbed")
    assert curve(runs / "chain") == curve(runs / "undisturbed")
    events = RunDir(runs / "chain").read_events()
    assert [event["world_size"] for event in events if event["event"] == "start"] == [4, 2, 3]
    resumed = [event["step"] for event in events if event["event"] == "resume"]
    assert resumed == sorted(resumed)
    assert resumed
    assert not [event for event in events if event["event"] == "alarm"]  # another size is no reason for other bits


@pytest.mark.parametrize(
    ("exact", "lora", "longest", "promise"),
    [
        ("auto", {}, CHEAP_UP_TO_TOKENS, "same bits on any number of GPUs"),
        ("auto", {}, CHEAP_UP_TO_TOKENS + 1, "none"),
        ("auto", None, 100, "same bits on as many GPUs"),
        ("on", {}, 100_000, "same bits on any number of GPUs"),
        ("on", None, 100_000, "same bits on as many GPUs"),
        ("off", {}, 100, "none"),
    ],
)
def test_what_is_promised(tmp_path: Path, exact: str, lora: dict[str, Any] | None, longest: int, promise: str) -> None:
    settings = settings_for(tmp_path, lora=lora, run={"exact": exact})
    assert choose_exactness(settings, longest).promise == promise
