"""Which MLPs become one module; what the kernels compute is tested where there is a GPU (test_step_gpu.py)."""

from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from seatrial.model.lora import apply_lora
from seatrial.model.mlp import fuse_mlps, will_fuse

ALL = ("q_proj", "gate_proj", "up_proj", "down_proj")


@pytest.mark.parametrize(
    ("changed", "targets", "rank", "dtype", "fused"),
    [
        ({}, ALL, 16, torch.bfloat16, True),
        ({}, ALL, 128, torch.bfloat16, True),
        ({}, ALL, 8, torch.bfloat16, False),
        ({}, ALL, 16, torch.float32, False),
        ({}, ("q_proj", "up_proj", "down_proj"), 16, torch.bfloat16, False),
        ({"hidden_act": "gelu"}, ALL, 16, torch.bfloat16, False),
        ({"mlp_bias": True}, ALL, 16, torch.bfloat16, False),
    ],
)
def test_the_config_tells_beforehand_which_models_mlps_are_fused(
    changed: dict[str, Any], targets: tuple[str, ...], rank: int, dtype: torch.dtype, fused: bool
) -> None:
    config = LlamaConfig(
        vocab_size=32,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        **changed,
    )
    model = AutoModelForCausalLM.from_config(config, dtype=dtype)
    apply_lora(model, targets=targets, rank=rank, alpha=16.0, seed=0)
    assert will_fuse(config.to_dict(), targets, rank, dtype) == fused
    assert fuse_mlps(model, keep=True) == (config.num_hidden_layers if fused else 0)
