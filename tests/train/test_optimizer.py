"""8-bit AdamW: bitsandbytes' numbers, close to 32 bits, and a state that a checkpoint restores to the bit."""

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor, nn

from seatrial.errors import UsageError
from seatrial.settings import OptimizerSettings
from seatrial.train.adamw8bit import AdamW8bit
from seatrial.train.optimizer import build_optimizer, training_state

RULE = {"lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1}


def parameters() -> dict[str, nn.Parameter]:
    random = torch.Generator().manual_seed(0)
    return {name: nn.Parameter(torch.randn(40, 130, generator=random)) for name in ("a", "b")}


def walk(trained: Mapping[str, nn.Parameter], optimizer: torch.optim.Optimizer, steps: range) -> None:
    """Towards 1, with a gradient that differs from step to step."""
    for step in steps:
        random = torch.Generator().manual_seed(step)
        for parameter in trained.values():
            parameter.grad = (parameter.detach() - 1) * torch.rand(40, 130, generator=random)
        optimizer.step()


def test_it_computes_what_bitsandbytes_computes() -> None:
    from bitsandbytes.optim.adamw import AdamW8bit as Theirs

    ours, theirs = parameters(), parameters()
    walk(ours, AdamW8bit(ours.values(), **RULE), range(20))  # type: ignore[arg-type]
    walk(theirs, Theirs(theirs.values(), **RULE), range(20))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_it_stays_close_to_32_bits() -> None:
    ours, exact = parameters(), parameters()
    start = parameters()
    walk(ours, AdamW8bit(ours.values(), **RULE), range(40))  # type: ignore[arg-type]
    walk(exact, torch.optim.AdamW(exact.values(), **RULE), range(40))  # type: ignore[arg-type]
    for name in ours:
        assert (ours[name] - exact[name]).norm() < 0.03 * (exact[name] - start[name]).norm()


def test_a_restored_state_goes_on_to_the_same_bits() -> None:
    undisturbed = parameters()
    walk(undisturbed, AdamW8bit(undisturbed.values(), **RULE), range(10))  # type: ignore[arg-type]

    before = parameters()
    optimizer = AdamW8bit(before.values(), **RULE)  # type: ignore[arg-type]
    walk(before, optimizer, range(4))
    saved: dict[str, Tensor] = {name: t.clone() for name, t in training_state(before, optimizer).items()}

    after = parameters()
    optimizer = AdamW8bit(after.values(), **RULE)  # type: ignore[arg-type]
    state = training_state(after, optimizer)
    assert state.keys() == saved.keys()
    parts = ("weight", "step", "exp_avg", "exp_avg_sq", "exp_avg_scales", "exp_avg_sq_scales")
    assert state.keys() == {f"{part}/{name}" for part in parts for name in after}
    for name, tensor in saved.items():
        state[name].copy_(tensor)
    walk(after, optimizer, range(4, 10))
    assert all(torch.equal(after[name], undisturbed[name]) for name in after)


def test_8_bits_without_a_gpu_are_refused() -> None:
    with pytest.raises(UsageError, match="adamw8bit needs an NVIDIA GPU, and there is none here; use adamw"):
        build_optimizer(parameters(), OptimizerSettings(kind="adamw8bit"))
