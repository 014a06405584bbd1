"""A number that is not finite never reaches the weights, and is traced to where it came from."""

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from seatrial.dist.checkpoint.checkpoints import Checkpoints
from seatrial.errors import SeatrialError
from seatrial.rundir import RunDir
from seatrial.train.loop import train
from seatrial.train.step import Training
from tests.small import settings_for, torchrun, write_config


def poison(model: Path, tensor: str) -> None:
    """One number of the model's embedding of some token becomes infinite."""
    file = model / "model.safetensors"
    tensors = load_file(file)
    tensors[tensor].view(-1)[5] = float("inf")
    save_file(tensors, file, metadata={"format": "pt"})


def test_a_broken_weight_is_named(harbour: Path) -> None:
    poison(harbour / "model", "model.layers.1.mlp.down_proj.weight")
    with pytest.raises(SeatrialError, match=r"step 3: .*first not finite: weight model\.layers\.1\.mlp\.down_proj"):
        train(settings_for(harbour))


class Breaks(nn.Module):
    """Passes its input on, and the gradient too, until it is told that a pass goes wrong."""

    def __init__(self, forward_pass: int, *, gradient: bool) -> None:
        super().__init__()
        self.passes, self.bad, self.gradient = 0, forward_pass, gradient

    def forward(self, x: Tensor) -> Tensor:
        self.passes += torch.is_grad_enabled()
        if self.passes < self.bad:
            return x * 1.0
        if not self.gradient:
            return x / 0.0
        y = x * 1.0
        y.register_hook(lambda gradient: gradient * float("nan"))
        return y


@pytest.mark.parametrize(
    ("gradient", "said"),
    [
        (False, r"output of model\.layers\.1\.post_attention_layernorm\.breaks"),
        (True, r"gradient of the (in|out)put of model\.layers\.1\."),
    ],
)
def test_the_first_tensor_is_named_and_nothing_is_updated(
    harbour: Path, monkeypatch: pytest.MonkeyPatch, gradient: bool, said: str
) -> None:
    """From the third step on: five packs a step. Neither it nor the step queued behind it may touch the weights."""
    from seatrial.train import build

    made: list[Training] = []
    saved: list[dict[str, Tensor]] = []

    def breaking(*args: object) -> Training:
        training = sound(*args)  # type: ignore[arg-type]
        norm = training.model.get_submodule("model.layers.1.post_attention_layernorm")
        norm.add_module("breaks", breaks)
        forward = norm.forward
        monkeypatch.setattr(norm, "forward", lambda x: breaks(forward(x)))
        made.append(training)
        return training

    breaks = Breaks(forward_pass=2 * 5 + 3, gradient=gradient)
    sound = build.make_fast
    monkeypatch.setattr("seatrial.train.loop.make_fast", breaking)
    stage = Checkpoints.stage

    def noting(self: Checkpoints, step: int) -> None:
        saved.append({name: tensor.clone() for name, tensor in self.state.items()})
        stage(self, step)

    monkeypatch.setattr(Checkpoints, "stage", noting)
    settings = settings_for(harbour, checkpoint={"every_steps": 2})
    with pytest.raises(SeatrialError, match=r"step 5: 3 steps in a row .*in pack 20 \(rows \[.*on rank 0"):
        train(settings)
    run = RunDir(settings.run.dir)
    assert [record["step"] for record in run.read_metrics()] == [1, 2]
    skips = [event for event in run.read_events() if event["event"] == "skip"]
    assert [event["step"] for event in skips] == [3, 4]
    assert re.search(r"first not finite: " + said + r".*, in pack 10 \(rows \[.*on rank 0", skips[0]["reason"])
    assert [event["step"] for event in run.read_events() if event["event"] == "save"] == [2]
    for copy in saved:
        weights = {name.removeprefix("weight/"): t for name, t in copy.items() if name.startswith("weight/")}
        assert all(torch.equal(made[0].trainable[name], tensor) for name, tensor in weights.items())
    outcome = run.read_outcome()
    assert outcome is not None
    assert outcome["status"] == "failed"
    assert "first not finite" in outcome["reason"]


def test_the_rank_is_named(harbour: Path) -> None:
    """A learning rate that throws the adapters out of range: every rank meets it, in packs of its own."""
    settings = settings_for(harbour, "two", optimizer={"learning_rate": 1e30, "schedule": "constant"})
    done = torchrun(write_config(settings, harbour / "two.yaml"), 2)
    assert done.returncode != 0
    outcome = RunDir(settings.run.dir).read_outcome()
    assert outcome is not None, done.stderr[-2000:]
    assert "on rank 0 (and on 1 more ranks)" in json.dumps(outcome["reason"])
