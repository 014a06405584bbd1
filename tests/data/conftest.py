"""A tokenizer of our own, small enough to be trained while the tests start."""

from pathlib import Path

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from seatrial.data.render import Renderer, read_template

TINY_TOKENS = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<tools>",
    "</tools>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)


def byte_level_tokenizer(special: tuple[str, ...], plain: tuple[str, ...] = ()) -> Tokenizer:
    """Byte-level BPE over a few lines of JSON and prose. ``plain`` tokens are added but not special."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    lines = [
        'What is the weather in Paris? {"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}',
        "system user assistant tool name description parameters type object properties required string integer",
    ]
    trainer = trainers.BpeTrainer(
        vocab_size=512, special_tokens=list(special), initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(lines * 10, trainer)
    tokenizer.add_tokens(list(plain))
    return tokenizer


@pytest.fixture(scope="session")
def tiny_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
        tokenizer_object=byte_level_tokenizer(TINY_TOKENS[:3], TINY_TOKENS[3:]),
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
    )
    tokenizer.chat_template = read_template("tiny")
    return tokenizer


@pytest.fixture(scope="session")
def tiny_renderer(tiny_tokenizer: PreTrainedTokenizerFast) -> Renderer:
    return Renderer(tiny_tokenizer, read_template("tiny"), "hermes", ("<|im_end|>",))


@pytest.fixture(scope="session")
def tiny_dir(tiny_tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_tokenizer.save_pretrained(folder)
    return folder
