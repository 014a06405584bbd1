"""A model that has learnt three answers by heart, and the suite they come from."""

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from seatrial.data.conversation import Conversation, Message, Tool, ToolCall, encode
from seatrial.data.render import Rendered, load_renderer
from seatrial.data.template import shipped_template
from tests.data.conftest import TINY_TOKENS, byte_level_tokenizer

WEATHER = Tool(
    "get_weather",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "number"}},
        "required": ["city"],
    },
)


def conversation(name: str, user: str, answer: Message, category: str) -> Conversation:
    return Conversation(name, "test", (Message("user", user), answer), (WEATHER,), category)


ROWS = (
    conversation(
        "one",
        "weather in Paris?",
        Message("assistant", tool_calls=(ToolCall("get_weather", {"city": "Paris"}),)),
        "single",
    ),
    conversation(
        "two",
        "weather in Oslo and, for two days, in Rome?",
        Message(
            "assistant",
            tool_calls=(
                ToolCall("get_weather", {"city": "Oslo"}),
                ToolCall("get_weather", {"city": "Rome", "days": 2}),
            ),
        ),
        "parallel",
    ),
    conversation("three", "sing me a song", Message("assistant", "None of my tools does that."), "irrelevant"),
)


def write_suite(folder: Path, rows: Sequence[Conversation]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "records.jsonl"
    file.write_bytes(b"".join(map(encode, rows)))
    return file


@pytest.fixture(scope="session")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama of two layers trained on ``ROWS`` until it repeats them, saved as transformers would."""
    folder = tmp_path_factory.mktemp("memory") / "model"
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=byte_level_tokenizer(TINY_TOKENS[:3], TINY_TOKENS[3:]),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    tokenizer.chat_template = shipped_template("tiny").source
    tokenizer.save_pretrained(folder)
    renderer = load_renderer(folder)

    torch.manual_seed(0)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=64,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            max_position_embeddings=512,
        )
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(60):
        for row in ROWS:
            rendered = renderer.render(row)
            assert isinstance(rendered, Rendered)
            ids = torch.from_numpy(rendered.ids).long()
            labels = ids.masked_fill(~torch.from_numpy(rendered.trained), -100)
            model(input_ids=ids[None], labels=labels[None]).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    return folder


@pytest.fixture
def suite_file(tmp_path: Path) -> Path:
    return write_suite(tmp_path / "held_out", ROWS)
