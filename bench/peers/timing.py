"""What the peers' scripts share: the work, the clock, and the form of the answer."""

import argparse
import json
import statistics
import time
from itertools import pairwise
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback

WARM_UP_STEPS = 4
GPU = torch.cuda.is_available()  # without one only the scripts are tested
TARGETS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]


def arguments(**flags: tuple[type, object, str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--config", type=Path, required=True, help="directory with the config.json of the architecture")
    parser.add_argument("--length", type=int, default=4096, help="tokens of every row; loss on every token")
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--rank", type=int, default=64)
    parser.add_argument("--steps", type=int, default=12, help=f"that are counted, after {WARM_UP_STEPS}")
    parser.add_argument("--json", type=Path, required=True)
    for name, (kind, default, help_text) in flags.items():
        parser.add_argument(f"--{name}", type=kind, default=default, help=help_text)
    return parser.parse_args()


def random_model(config: Path) -> torch.nn.Module:
    """In bfloat16, drawn on the GPU."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("cuda" if GPU else "cpu"):
            return AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(config), attn_implementation="sdpa")
    finally:
        torch.set_default_dtype(before)


def bare_tokenizer(vocabulary: int) -> PreTrainedTokenizerFast:
    """Trainers want one; the rows are token numbers already."""
    from tokenizers import Tokenizer, models

    names = {"<pad>": 0, "<eos>": 1, "<unk>": 2, **{f"t{i}": i for i in range(3, vocabulary)}}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(names, unk_token="<unk>")),
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<unk>",
    )


def random_rows(asked: argparse.Namespace, vocabulary: int) -> list[list[int]]:
    torch.manual_seed(0)
    return torch.randint(3, vocabulary, (asked.batch * (WARM_UP_STEPS + asked.steps), asked.length)).tolist()


class Clock(TrainerCallback):
    """When each step ended on the device."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def on_step_end(self, *_: object, **__: object) -> None:
        if GPU:
            torch.cuda.synchronize()
        self.marks.append(time.perf_counter())


def answer(asked: argparse.Namespace, clock: Clock, peer: str, settings: dict[str, object]) -> None:
    ends = clock.marks[WARM_UP_STEPS - 1 :]
    seconds = [later - earlier for earlier, later in pairwise(ends)]
    median = statistics.median(seconds)
    result = {
        "peer": peer,
        "tokens_per_s_per_gpu": asked.batch * asked.length / median,
        "step_ms": {"p50": 1e3 * median, "n": len(seconds), "least": 1e3 * min(seconds), "most": 1e3 * max(seconds)},
        "peak_memory_gib": torch.cuda.max_memory_allocated() / 2**30 if GPU else 0.0,
        "batch": asked.batch,
        "settings": settings,
        "device": torch.cuda.get_device_name() if GPU else "cpu",
    }
    asked.json.write_text(json.dumps(result, indent=2))
    print(f"{peer}: {result['tokens_per_s_per_gpu']:,.0f} tokens/s, peak {result['peak_memory_gib']:.1f} GiB")
