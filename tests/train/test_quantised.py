"""A 4-bit base and dropout in the loop: the same curve on any number of processes, replicated or sharded."""

from pathlib import Path

import pytest
from transformers import AutoConfig, LlamaForCausalLM

from seatrial.errors import UsageError
from seatrial.rundir import RunDir
from seatrial.settings import TrainSettings
from seatrial.train.loop import train
from tests.small import settings_for, torchrun, write_config


def losses(run: Path) -> list[float]:
    return [record["loss"] for record in RunDir(run).read_metrics()]


def short(folder: Path, run: str, plan: str) -> TrainSettings:
    return settings_for(
        folder,
        run,
        model={"base": "nf4"},
        lora={"dropout": 0.1},
        optimizer={"steps": 4},
        parallel={"plan": plan},
    )


@pytest.fixture
def wide(harbour: Path) -> Path:
    """The same with widths that 4-bit blocks divide."""
    config = AutoConfig.from_pretrained(harbour / "model")
    config.hidden_size, config.intermediate_size, config.head_dim = 64, 128, 16
    LlamaForCausalLM(config).save_pretrained(harbour / "model")
    return harbour


def test_the_curve_does_not_depend_on_the_number_of_processes(wide: Path) -> None:
    train(short(wide, "alone", "replicate"))
    expected = losses(wide / "alone")
    assert len(expected) == 4
    for plan in ("replicate", "shard"):
        done = torchrun(write_config(short(wide, plan, plan), wide / f"{plan}.yaml"), 2)
        assert done.returncode == 0, done.stderr[-2000:]
        assert losses(wide / plan) == pytest.approx(expected, abs=1e-5), plan


def test_4_bits_and_dropout_cost_little_of_what_is_learned(wide: Path) -> None:
    train(settings_for(wide, "plain"))
    train(settings_for(wide, "small", model={"base": "nf4"}, lora={"dropout": 0.05}))
    plain, small = losses(wide / "plain"), losses(wide / "small")
    assert small != plain
    assert small[-1] == pytest.approx(plain[-1], rel=0.01)


def test_products_in_float8_cost_little_too(wide: Path) -> None:
    train(settings_for(wide, "plain"))
    train(settings_for(wide, "small", model={"base": "nf4", "products": "fp8"}))
    plain, small = losses(wide / "plain"), losses(wide / "small")
    assert small != plain
    assert small[-1] == pytest.approx(plain[-1], rel=0.01)
    with pytest.raises(UsageError, match=r"model.products: fp8 is for model.base nf4, and this one is plain"):
        train(settings_for(wide, "refused", model={"products": "fp8"}))
