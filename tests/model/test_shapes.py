"""Shapes by name have the parameters that their makers state."""

import pytest
import torch
from transformers import AutoModelForCausalLM

from seatrial.errors import UsageError
from seatrial.model.load import empty_model
from seatrial.model.shapes import SOURCES, parameters, shape

# As the models' cards state them, in billions: of all parameters, embeddings included.
BILLIONS = {
    "llama-3.1-8b": 8.03,
    "llama-3.1-70b": 70.55,
    "llama-2-7b": 6.74,
    "llama-3.2-1b": 1.24,
    "llama-3.2-3b": 3.21,
    "qwen2.5-7b": 7.62,
    "qwen2.5-32b": 32.76,
    "qwen3-8b": 8.19,
    "qwen3-32b": 32.76,
    "mistral-7b-v0.3": 7.25,
}


@pytest.mark.parametrize("name", [*SOURCES, "tiny"])
def test_the_formula_counts_what_the_model_has(name: str) -> None:
    model = empty_model(shape(name), "bfloat16")
    count = sum(parameter.numel() for parameter in model.parameters())
    assert parameters(shape(name)) == count
    if name != "tiny":
        assert count / 1e9 == pytest.approx(BILLIONS[name], abs=0.006)


@pytest.mark.parametrize("name", SOURCES)
def test_positions_reach_as_far_as_the_model_was_made_for(name: str) -> None:
    """The lowest frequency follows from theta and scaling: a config that lost either would not show in the counts."""
    config = shape(name)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    rotary = model.model.rotary_emb.to_empty(device="cpu")
    model._init_weights(rotary)
    theta = {"llama-3": 5e5, "llama-2": 1e4}.get(name[:7], 1e6)
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    scaled = {"llama-3.1": 8.0, "llama-3.2": 32.0}.get(name[:9], 1.0)
    lowest = theta ** -((width - 2) / width) / scaled
    assert float(rotary.inv_freq[-1]) == pytest.approx(lowest, rel=1e-4)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no shape is called Llama-3\.1-8; did you mean llama-3\.1-8b\?"):
        shape("Llama-3.1-8")
    with pytest.raises(UsageError, match=r"known: \['llama-3\.1-8b'"):
        shape("gpt")
