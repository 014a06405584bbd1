"""One sha256 of the adapters, and one curve, at every number of processes, through kills and changes of size."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from seatrial.model.adapter import WEIGHTS
from seatrial.rundir import RunDir
from seatrial.train.exact import CHEAP_UP_TO_TOKENS, choose_exactness
from tests.small import settings_for, write_config
from tests.worlds import run_worlds

# Neither 4 nor 5 divides six packs a step. Every adapter drops, so masks must not depend on the rank either.
SECTIONS: dict[str, dict[str, Any]] = {
    "optimizer": {"steps": 4, "packs_per_step": 6},
    "lora": {"dropout": 0.1},
    "model": {"compute": "bfloat16"},
    "checkpoint": {"every_steps": 2},
}


def training(folder: Path, name: str, processes: int, **sections: dict[str, Any]) -> dict[str, Any]:
    merged = {key: {**SECTIONS.get(key, {}), **sections.get(key, {})} for key in SECTIONS.keys() | sections.keys()}
    settings = settings_for(folder, name, **merged)
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


def test_one_sha256_and_one_curve_on_one_to_five_processes(harbour: Path) -> None:
    """Under every plan, in bfloat16, with dropout. Without exactness the same worlds differ: the test can fail."""
    one = [training(harbour, f"exact-{n}", n) for n in range(1, 6)]
    plans: list[tuple[str, int, dict[str, Any]]] = [
        ("shard", 3, {"plan": "shard"}),
        ("hybrid", 4, {"plan": "hybrid", "shard_size": 2}),
    ]
    one += [training(harbour, name, n, parallel=parallel) for name, n, parallel in plans]
    other = [training(harbour, f"float-{n}", n, run={"exact": "off"}) for n in (1, 3)]
    run_worlds([*one, *other])
    runs = [Path(each["config"]).with_suffix("") for each in one]
    assert len({sha256(run) for run in runs}) == 1
    assert all(curve(run) == curve(runs[0]) for run in runs)
    assert sha256(harbour / "float-1") != sha256(harbour / "float-3")
    promised = [e["promise"] for e in RunDir(runs[0]).read_events() if e["event"] == "exact"]
    assert promised == ["same bits on any number of GPUs"]


def test_float32_too(harbour: Path) -> None:
    sections: dict[str, Any] = {"model": {"compute": "float32"}, "lora": {"dropout": 0.0}}
    run_worlds([training(harbour, f"wide-{n}", n, **sections) for n in (1, 3)])
    assert sha256(harbour / "wide-1") == sha256(harbour / "wide-3")


def test_killed_and_resumed_at_other_sizes_it_is_the_undisturbed_run(harbour: Path) -> None:
    sections: dict[str, Any] = {"optimizer": {"steps": 16, "packs_per_step": 6}}
    undisturbed = training(harbour, "undisturbed", 1, **sections)
    chain = [(4, 3), (2, 7), (3, 11), (4, None)]
    attempts = [{**training(harbour, "chain", n, **sections), "kill_at": kill_at} for n, kill_at in chain]
    run_worlds([undisturbed, *attempts])
    assert sha256(harbour / "chain") == sha256(harbour / "undisturbed")
    assert curve(harbour / "chain") == curve(harbour / "undisturbed")
    events = RunDir(harbour / "chain").read_events()
    assert [event["world_size"] for event in events if event["event"] == "start"] == [4, 2, 3, 4]
    resumed = [event["step"] for event in events if event["event"] == "resume"]
    assert resumed == sorted(resumed)
    assert resumed, json.dumps(events)


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
