"""The formula, against what PyTorch counts and against the numbers of a known model."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM, LlamaConfig

from seatrial.dist.plan import Shape
from seatrial.model.shapes import shape
from seatrial.train.flops import Work, flop_cost

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


def test_full_training_against_the_counter_of_pytorch() -> None:
    """PyTorch counts the products it sees, attention without the half that causality saves."""
    config = LlamaConfig(
        vocab_size=500,
        hidden_size=64,
        intermediate_size=160,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    tokens = 96
    with FlopCounterMode(display=False) as counter:
        model(input_ids=torch.zeros(1, tokens, dtype=torch.long)).logits.sum().backward()
    cost = flop_cost(Shape.of(config.to_dict()), rank=0, targets=())
    causal = cost.attention * tokens**2
    work = Work(tokens, tokens, tokens**2)
    # The rotary embedding's outer product of positions and frequencies is counted there, and is next to nothing.
    assert counter.get_total_flops() == pytest.approx(cost.flop(work) + causal, rel=1e-3)


def test_a_lora_step_of_llama_8b() -> None:
    cost = flop_cost(Shape.of(shape("llama-3.1-8b").to_dict()), rank=64, targets=TARGETS)
    assert cost.base == 4 * 6_979_321_856  # 32 blocks of 218,103,808
    assert cost.head == 4 * 128_256 * 4096
    assert cost.adapters == 6 * 167_772_160  # what PEFT reports as trainable at rank 64
    assert cost.attention == 6 * 4096 * 32
    two_rows = Work(8192, 8190, 2 * 4096**2)
    assert cost.flop(two_rows) / 8192 == pytest.approx(34.2e9, rel=0.01)


def test_ideal_time_takes_each_format_at_its_own_ceiling() -> None:
    cost = flop_cost(Shape.of(shape("llama-3.1-8b").to_dict()), rank=64, targets=TARGETS)
    work = Work(1000, 0, 0)
    ceilings = {"bf16": 700.0, "fp8": 1400.0}
    slow, fast = (cost.ideal_seconds(work, ceilings, kind) for kind in ("bf16", "fp8"))
    assert slow == pytest.approx(cost.flop(work) / 700e12)
    assert slow - fast == pytest.approx(cost.base_flop(work) / 1400e12)
