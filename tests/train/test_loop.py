"""The loop: the curve does not depend on the number of processes, and a stop loses nothing."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from seatrial.errors import Preempted, SeatrialError, UsageError
from seatrial.model.adapter import WEIGHTS
from seatrial.rundir import RunDir
from seatrial.stop import STEPS_UNTIL_ALL_SAVE
from seatrial.train.loop import train
from tests.small import settings_for, torchrun, write_config, write_rows


def losses(run: Path) -> list[float]:
    records = {record["step"]: record["loss"] for record in RunDir(run).read_metrics()}
    return [records[step] for step in sorted(records)]


def test_the_curve_is_the_same_on_one_to_four_processes(harbour: Path) -> None:
    """Five packs a step divide by none: the plan and the loss are global, and empty packs fill the gap."""
    train(settings_for(harbour, "alone"))
    expected = losses(harbour / "alone")
    assert len(expected) == 8
    assert expected[-1] < expected[0] - 0.05
    laid_out: dict[str, tuple[int, dict[str, str | int], str]] = {
        "auto": (2, {"plan": "auto"}, "none"),
        "replicate": (3, {"plan": "replicate"}, "selective"),
        "shard": (3, {"plan": "shard"}, "full"),
        "hybrid": (4, {"plan": "hybrid", "shard_size": 2}, "none"),
    }
    for name, (processes, parallel, recompute) in laid_out.items():
        settings = settings_for(
            harbour, name, parallel=parallel, model={"activation_checkpointing": recompute, "compile": "off"}
        )
        done = torchrun(write_config(settings, harbour / f"{name}.yaml"), processes)
        assert done.returncode == 0, done.stderr[-2000:]
        assert losses(harbour / name) == pytest.approx(expected, abs=1e-5), name
        laid = next(event for event in RunDir(harbour / name).read_events() if event["event"] == "layout")
        assert laid["plan"] == ("replicate" if name == "auto" else name)
        assert laid["checkpointing"] == recompute


def test_a_stopped_run_resumes_to_the_same_bits(harbour: Path) -> None:
    train(settings_for(harbour, "undisturbed"))
    settings = settings_for(harbour, "stopped")
    run = RunDir(settings.run.dir)
    for _ in range(20):
        try:
            with _stop_file_after_the_start(run):
                train(settings)
            break
        except Preempted:
            outcome = run.read_outcome()
            assert outcome is not None
            assert outcome["exit_code"] == 75
    outcome = run.read_outcome()
    assert outcome is not None
    assert outcome["status"] == "done"
    assert [record["step"] for record in run.read_metrics()] == list(range(1, 9))
    assert losses(run.path) == losses(harbour / "undisturbed")
    expected = load_file(harbour / "undisturbed" / "adapter" / WEIGHTS)
    found = load_file(run.adapter / WEIGHTS)
    assert found.keys() == expected.keys()
    assert all(bool((found[name] == expected[name]).all()) for name in expected)


class _stop_file_after_the_start:  # noqa: N801
    """Ask for a stop as soon as this attempt has taken its first step, from a thread of our own."""

    def __init__(self, run: RunDir) -> None:
        self._run = run

    def __enter__(self) -> None:
        import threading

        before = len(self._run.read_metrics())
        self._done = threading.Event()

        def ask() -> None:
            while not self._done.wait(0.005):
                if len(self._run.read_metrics()) > before:
                    self._run.stop_file.touch()
                    return

        self._thread = threading.Thread(target=ask)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()


def test_ctrl_c_saves_exits_75_and_the_same_command_goes_on(harbour: Path) -> None:
    settings = settings_for(harbour, optimizer={"steps": 60}, checkpoint={"every_steps": 1000})
    command = [sys.executable, "-m", "seatrial", "train", str(write_config(settings, harbour / "c.yaml"))]
    run = RunDir(settings.run.dir)
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not run.read_metrics() and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=120)
    assert process.returncode == 75, said
    assert "saved step" in said
    saved = run.read_metrics()[-1]["step"]
    assert 0 < saved < 60
    again = subprocess.run([*command, "optimizer.steps=60"], capture_output=True, text=True, timeout=300, check=False)
    assert again.returncode == 0, again.stderr
    assert [event["step"] for event in run.read_events() if event["event"] == "resume"] == [saved]
    assert [record["step"] for record in run.read_metrics()] == list(range(1, 61))


def test_sigterm_to_torchrun_saves_on_every_rank(harbour: Path) -> None:
    settings = settings_for(harbour, optimizer={"steps": 2000}, checkpoint={"every_steps": 1000})
    run = RunDir(settings.run.dir)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    config = str(write_config(settings, harbour / "c.yaml"))
    process = subprocess.Popen(
        [*launch, "-m", "seatrial", "train", config], stderr=subprocess.DEVNULL, env={**os.environ}
    )
    deadline = time.monotonic() + 60
    while len(run.read_metrics()) < STEPS_UNTIL_ALL_SAVE and time.monotonic() < deadline:
        time.sleep(0.05)
    process.terminate()
    process.wait(60)
    outcome = run.read_outcome()
    assert outcome is not None
    assert (outcome["status"], outcome["exit_code"]) == ("preempted", 75)
    newest = sorted(run.checkpoints.iterdir())[-1]
    assert json.loads((newest / "manifest.json").read_text())["step"] == run.read_metrics()[-1]["step"]


def test_a_directory_of_another_run_is_refused(harbour: Path) -> None:
    train(settings_for(harbour, optimizer={"steps": 1}))
    with pytest.raises(UsageError, match=r"other settings: optimizer.learning_rate was 0.01, is 0.5; choose another"):
        train(settings_for(harbour, optimizer={"steps": 1, "learning_rate": 0.5}))
    (harbour / "full").mkdir()
    (harbour / "full" / "thesis.tex").touch()
    with pytest.raises(UsageError, match=r"is not empty and holds no run \(thesis.tex\)"):
        train(settings_for(harbour, "full"))


def test_a_checkpoint_does_not_go_on_with_other_rows(harbour: Path) -> None:
    train(settings_for(harbour, optimizer={"steps": 3}))
    write_rows(harbour / "data", seed=2)
    with pytest.raises(UsageError, match="another training: data was"):
        train(settings_for(harbour, optimizer={"steps": 3}))


def test_a_directory_in_use_is_refused(harbour: Path) -> None:
    settings = settings_for(harbour)
    with RunDir(settings.run.dir).locked(), pytest.raises(UsageError, match=f"in use by process {os.getpid()}"):
        train(settings)


def test_rows_that_cannot_be_trained_on_are_an_error(harbour: Path) -> None:
    with pytest.raises(UsageError, match=r"no row is left to train on \(40 longer than a pack\)"):
        train(settings_for(harbour, data={"length": 8}))
    records = harbour / "data" / "records.jsonl"
    records.write_text(records.read_text().replace('"role":"assistant"', '"role":"assistant","weight":0.0'))
    with pytest.raises(UsageError, match="none of its 40 rows has an assistant turn to train on"):
        train(settings_for(harbour))
    records.unlink()
    with pytest.raises(UsageError, match="no such file; make it with `seatrial data prepare`"):
        train(settings_for(harbour))


def test_full_training_leaves_a_model_that_loads(harbour: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    settings = settings_for(harbour, lora=None, optimizer={"steps": 2})
    train(settings)
    model = AutoModelForCausalLM.from_pretrained(settings.run.dir / "model")
    assert model.config.vocab_size == 2048
    assert AutoTokenizer.from_pretrained(settings.run.dir / "model").chat_template
    loaded = next(event for event in RunDir(settings.run.dir).read_events() if event["event"] == "loaded")
    stored = load_file(harbour / "model" / "model.safetensors")
    assert loaded["read_bytes"] == sum(tensor.nbytes for tensor in stored.values())
    assert loaded["seconds"] > 0


def test_attention_that_leaks_is_refused_before_the_first_step(harbour: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An attention kernel that takes a pack for one document, as an attention backend without varlen support does."""
    from seatrial.model import attention

    def leaking(query: Tensor, key: Tensor, value: Tensor, cu_seq_lens_q: Tensor, scaling: float | None) -> Tensor:
        whole = torch.tensor([0, int(cu_seq_lens_q[-1])], dtype=torch.int32)
        out: Tensor = sound(query, key, value, whole, scaling)
        return out

    sound = attention._document_by_document
    monkeypatch.setattr(attention, "_document_by_document", leaking)
    settings = settings_for(harbour)
    with pytest.raises(SeatrialError, match="packing changes the loss"):
        train(settings)
    assert RunDir(settings.run.dir).read_metrics() == []
