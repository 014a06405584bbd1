"""Architectures by name, for benchmarks with random weights: what a step costs depends on the shape alone.

The values are those of the models' public config.json on the Hugging Face hub, of the repositories in ``SOURCES``.
"""

import difflib
from typing import Any

from transformers import AutoConfig, LlamaConfig, MistralConfig, PretrainedConfig, Qwen2Config, Qwen3Config

from seatrial.errors import UsageError

SOURCES = {
    "llama-3.1-8b": "meta-llama/Llama-3.1-8B",
    "llama-3.1-70b": "meta-llama/Llama-3.1-70B",
    "llama-2-7b": "meta-llama/Llama-2-7b-hf",
    "llama-3.2-1b": "meta-llama/Llama-3.2-1B",
    "llama-3.2-3b": "meta-llama/Llama-3.2-3B",
    "qwen2.5-7b": "Qwen/Qwen2.5-7B",
    "qwen2.5-32b": "Qwen/Qwen2.5-32B",
    "qwen3-8b": "Qwen/Qwen3-8B",
    "qwen3-32b": "Qwen/Qwen3-32B",
    "mistral-7b-v0.3": "mistralai/Mistral-7B-v0.3",
}


def shape(name: str) -> PretrainedConfig:
    """The configuration of an architecture; 'tiny' is that of the base shipped with seatrial.

    Raises:
        UsageError: no such name; says the nearest.
    """
    match name:
        case "tiny":
            from seatrial.model.load import TINY

            config: PretrainedConfig = AutoConfig.from_pretrained(TINY)
            return config
        case "llama-3.1-8b":
            return _llama3(hidden=4096, intermediate=14336, layers=32, heads=32, factor=8.0, tied=False)
        case "llama-3.1-70b":
            return _llama3(hidden=8192, intermediate=28672, layers=80, heads=64, factor=8.0, tied=False)
        case "llama-3.2-1b":
            return _llama3(hidden=2048, intermediate=8192, layers=16, heads=32, factor=32.0, tied=True)
        case "llama-3.2-3b":
            return _llama3(hidden=3072, intermediate=8192, layers=28, heads=24, factor=32.0, tied=True)
        case "llama-2-7b":
            return LlamaConfig(
                vocab_size=32000,
                **_widths(hidden=4096, intermediate=11008, layers=32, heads=32, key_value_heads=32),
                max_position_embeddings=4096,
                rms_norm_eps=1e-5,
                rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
            )
        case "qwen2.5-7b":
            return Qwen2Config(
                vocab_size=152064,
                **_widths(hidden=3584, intermediate=18944, layers=28, heads=28, key_value_heads=4),
                max_position_embeddings=131072,
                rms_norm_eps=1e-6,
                rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
            )
        case "qwen2.5-32b":
            return Qwen2Config(
                vocab_size=152064,
                **_widths(hidden=5120, intermediate=27648, layers=64, heads=40, key_value_heads=8),
                max_position_embeddings=131072,
                rms_norm_eps=1e-5,
                rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
            )
        case "qwen3-8b":
            return _qwen3(hidden=4096, intermediate=12288, layers=36, heads=32)
        case "qwen3-32b":
            return _qwen3(hidden=5120, intermediate=25600, layers=64, heads=64)
        case "mistral-7b-v0.3":
            return MistralConfig(
                vocab_size=32768,
                **_widths(hidden=4096, intermediate=14336, layers=32, heads=32, key_value_heads=8),
                head_dim=128,
                max_position_embeddings=32768,
                rms_norm_eps=1e-5,
                sliding_window=None,
                rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
            )
    names = [*SOURCES, "tiny"]
    near = difflib.get_close_matches(name.lower(), names, n=1)
    raise UsageError(f"no shape is called {name}; " + (f"did you mean {near[0]}?" if near else f"known: {names}"))


def parameters(config: PretrainedConfig) -> int:
    """Number of parameters of a Llama-like decoder, by formula; tied embeddings count once."""
    width, vocabulary = config.hidden_size, config.vocab_size
    head = getattr(config, "head_dim", None) or width // config.num_attention_heads
    queries, keys = config.num_attention_heads * head, config.num_key_value_heads * head
    attention = 2 * width * queries + 2 * width * keys
    if config.model_type == "qwen2":
        attention += queries + 2 * keys  # biases
    if config.model_type == "qwen3":
        attention += 2 * head  # norms of query and key
    block = attention + 3 * width * config.intermediate_size + 2 * width
    embeddings = vocabulary * width * (1 if config.tie_word_embeddings else 2)
    count: int = config.num_hidden_layers * block + width + embeddings
    return count


def _llama3(*, hidden: int, intermediate: int, layers: int, heads: int, factor: float, tied: bool) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=128256,
        **_widths(hidden=hidden, intermediate=intermediate, layers=layers, heads=heads, key_value_heads=8, tied=tied),
        head_dim=hidden // heads,
        max_position_embeddings=131072,
        rms_norm_eps=1e-5,
        bos_token_id=128000,
        eos_token_id=128001,
        rope_parameters={
            "rope_type": "llama3",
            "rope_theta": 500000.0,
            "factor": factor,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192,
        },
    )


def _qwen3(*, hidden: int, intermediate: int, layers: int, heads: int) -> Qwen3Config:
    return Qwen3Config(
        vocab_size=151936,
        **_widths(hidden=hidden, intermediate=intermediate, layers=layers, heads=heads, key_value_heads=8),
        head_dim=128,
        max_position_embeddings=40960,
        rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1000000.0},
    )


def _widths(
    *, hidden: int, intermediate: int, layers: int, heads: int, key_value_heads: int, tied: bool = False
) -> dict[str, Any]:
    return {
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": key_value_heads,
        "tie_word_embeddings": tied,
    }
