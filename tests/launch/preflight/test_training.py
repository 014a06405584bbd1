"""Real settings, models and rows on this machine, wrong in one way each."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import seatrial
from seatrial.data.conversation import Conversation, Message, encode
from seatrial.launch.preflight.finding import Finding
from seatrial.launch.preflight.training import check_training, judge_lengths, judge_space, needed_bytes
from seatrial.settings import DataSettings, LoraSettings, TrainSettings
from tests.hub import REPOS, hub
from tests.launch.preflight.jobs import FAIL, PASS, SKIPPED, WARN, job

TINY = Path(seatrial.__file__).parent / "assets" / "tiny"
LLAMA_8B = {
    "vocab_size": 128256,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
}


@pytest.fixture
def share(tmp_path: Path) -> Path:
    """What the nodes share, with records in it."""
    rows = [
        Conversation(str(n), "t", (Message("user", f"Is {n} odd?"), Message("assistant", "Yes. " * n)))
        for n in range(1, 9)
    ]
    (tmp_path / "rows").mkdir()
    (tmp_path / "rows" / "records.jsonl").write_bytes(b"".join(map(encode, rows)))
    return tmp_path


def look(
    share: Path, settings: dict[str, Any] | None = None, target: str = "slurm", **fields: Any
) -> dict[str, Finding]:
    """Findings of a job by the first word of what was looked at; ``settings`` are sections that differ."""
    sections: dict[str, Any] = {"run": {"dir": "run"}, "model": {"path": "tiny"}, "data": {"train": "rows"}}
    sections |= settings or {}
    config = share / "train.yaml"
    config.write_text(str(sections))  # Python's literals are YAML
    given = {"workdir": share, "mounts": [{"path": share}], "venv": "/venv", **fields}
    return {found.what.split()[0]: found for found in check_training(job(**given), target, config)}


def test_a_job_that_is_sound(share: Path) -> None:
    found = look(share)
    assert {name: finding.verdict for name, finding in found.items()} == dict.fromkeys(
        ("settings", "model", "data", "free"), PASS
    )
    assert found["data"].reason.startswith("8 of the first 8 rows can be trained on")


def test_wrong_settings_are_said_as_train_says_them(share: Path) -> None:
    found = look(share, {"modle": {}})
    assert found["settings"].verdict is FAIL
    assert "unknown key" in found["settings"].reason
    assert list(found) == ["settings"]


def test_a_drill_makes_run_directories_of_its_own(share: Path) -> None:
    assert set(look(share, verb="drill", run_dir="runs")) == {"settings", "model", "data"}


def test_overrides_count(share: Path) -> None:
    assert look(share, arguments=["data.length=banana"])["settings"].verdict is FAIL
    assert look(share, arguments=["--fresh", "optimizer.steps=3"])["settings"].verdict is PASS


@pytest.mark.parametrize(
    ("settings", "what", "verdict", "words"),
    [
        ({"data": {"train": "nothing"}}, "data", FAIL, "no such file"),
        ({"data": {"train": "rows", "length": 8}}, "data", FAIL, "so none is left"),
        ({"data": {"train": "rows", "length": 30}}, "data", WARN, "longer than data.length 30"),
        ({"data": {"train": "rows", "length": 30, "over_long": "raise"}}, "data", FAIL, "over_long is raise"),
        ({"data": {"train": "rows", "template": "nosuch"}}, "template", FAIL, "nosuch"),
        ({"model": {"path": "./nomodel"}}, "model", FAIL, "has no config.json"),
        ({"checkpoint": {"dir": "s3://bucket/run"}}, "free", SKIPPED, "s3://bucket/run"),
    ],
)
def test_what_is_wrong_with_it(share: Path, settings: dict[str, Any], what: str, verdict: object, words: str) -> None:
    finding = look(share, settings)[what]
    assert finding.verdict is verdict
    assert words in finding.reason
    assert finding.remedy or verdict is SKIPPED


def test_records_that_are_none(share: Path) -> None:
    (share / "rows" / "records.jsonl").write_text('{"text": "hello"}\n')
    assert "not a seatrial record" in look(share)["data"].reason
    (share / "rows" / "records.jsonl").write_text("")
    assert "holds no record" in look(share)["data"].reason


def test_a_model_without_weights(share: Path) -> None:
    (share / "model").mkdir()
    (share / "model" / "config.json").write_text("{}")
    assert look(share, {"model": {"path": "model"}})["model"].reason.endswith("has no *.safetensors")
    (share / "model" / "config.json").write_text((TINY / "config.json").read_text())
    found = look(share, {"model": {"path": "model", "weights": "random"}})
    assert found["model"].verdict is PASS
    assert "tokenizer" in found["template"].reason


def test_a_model_that_is_no_decoder(share: Path) -> None:
    (share / "model").mkdir()
    (share / "model" / "config.json").write_text("{}")
    found = look(share, {"model": {"path": "model", "weights": "random"}})
    assert "no decoder that we know" in found["model"].reason


def test_a_model_of_the_hub_is_better_staged(share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        file.name: file.read_bytes() for file in TINY.iterdir() if file.suffix in (".json", ".jinja", ".safetensors")
    }
    monkeypatch.setitem(REPOS, "models/sea/tiny", files)
    with served(share, monkeypatch):
        found = look(share, {"model": {"path": "sea/tiny"}})
    assert found["model"].verdict is WARN
    assert "[[fetch, sea/tiny, --to, DIR]]" in found["model"].remedy
    assert found["data"].verdict is PASS  # its tokenizer came, its weights did not
    assert not list((share / "cache").rglob("*.safetensors"))


@contextmanager
def served(share: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Names of models are looked for on a hub of our own."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(share / "cache"))
    with hub() as endpoint:
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", endpoint)  # read from HF_ENDPOINT once
        files = endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr("huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE", files)
        yield


def test_a_name_that_the_hub_does_not_know(share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(share, monkeypatch):
        found = look(share, {"model": {"path": "sea/none"}})
    assert found["model"].verdict is FAIL
    assert "no such model or dataset on the hub" in found["model"].reason


def test_a_hub_that_only_the_nodes_may_reach(share: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    assert look(share, {"model": {"path": "sea/pilot"}})["model"].verdict is WARN


@pytest.mark.parametrize("target", ["kubernetes", "skypilot"])
def test_what_only_the_nodes_see_is_left_to_them(share: Path, target: str) -> None:
    found = look(share, target=target)
    assert found["data"].verdict is SKIPPED
    assert "--stage" in found["data"].remedy
    stage = [["prepare", "--in", "a/b", "--out", str(share / "rows")]]
    assert look(share, target=target, stage=stage, workdir=share)["data"].reason.endswith("--stage puts it there")
    assert found["free"].verdict is SKIPPED
    assert look(share, target=target, mounts=[{"path": share, "size_gib": 10}])["size"].verdict is PASS


@pytest.mark.parametrize(
    ("mount", "target", "nodes", "words"),
    [
        ({"kind": "scratch"}, "slurm", 1, "is lost when the job ends"),
        ({"kind": "disk"}, "slurm", 2, "each of 2 nodes has of its own"),
        (None, "kubernetes", 1, "goes with its container"),
    ],
)
def test_run_directories_that_do_not_last(
    share: Path, mount: dict[str, Any] | None, target: str, nodes: int, words: str
) -> None:
    mounts = [{"path": share, **mount}] if mount is not None else []
    finding = look(share, target=target, nodes=nodes, mounts=mounts)["run.dir"]
    assert finding.verdict is FAIL
    assert words in finding.reason


def test_docker_sees_the_host_behind_a_mount(share: Path) -> None:
    fields: dict[str, Any] = {"workdir": "/work", "mounts": [{"path": "/work", "source": str(share)}], "nodes": 1}
    assert look(share, target="docker", **fields)["data"].verdict is PASS
    fields["mounts"][0]["source"] = "a-volume"
    assert look(share, target="docker", **fields)["data"].verdict is SKIPPED


def test_room_for_checkpoints() -> None:
    """12 bytes a trained parameter: 8.03e9 of Llama 3.1 8B, or 16 x (in + out) for each of its linear layers."""
    whole = TrainSettings.model_validate({**_sections(), "lora": None})
    assert needed_bytes(LLAMA_8B, whole) == pytest.approx(3 * 12 * 8.03e9, rel=0.001)
    adapter = TrainSettings.model_validate({**_sections(), "lora": LoraSettings(rank=16), "checkpoint": {"keep": 3}})
    of_a_block = (4096 + 4096) * 2 + (4096 + 1024) * 2 + (4096 + 14336) * 3
    assert needed_bytes(LLAMA_8B, adapter) == 4 * 12 * 16 * 32 * of_a_block
    assert judge_space("disk", 10, 11).verdict is FAIL
    assert judge_space("disk", 11, 11).verdict is PASS


def test_lengths_of_nothing() -> None:
    assert judge_lengths("data", [], 5, DataSettings(train=Path("x"))).verdict is FAIL


def _sections() -> dict[str, Any]:
    return {"run": {"dir": "r"}, "model": {"path": "m"}, "data": {"train": "d"}}
