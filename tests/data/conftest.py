"""Tokenizers of our own, small enough to be trained while the tests start, with the control tokens of each family."""

import resource
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest
from hypothesis import settings
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from seatrial.data.render import Renderer
from seatrial.data.template import shipped_template

# The first example of a test pays for compiling templates, which says nothing about the code.
settings.register_profile("data", deadline=None)
settings.load_profile("data")

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
LLAMA_TOKENS = ("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
_MISTRAL_TURNS = ("<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]")
MISTRAL_TOKENS = (*_MISTRAL_TURNS, "[TOOL_CALLS]", "[TOOL_RESULTS]", "[/TOOL_RESULTS]")
TOOL_TAGS = ("<tool_call>", "</tool_call>")
THINK_TAGS = ("<tool_response>", "</tool_response>", "<think>", "</think>")

# By template: special tokens, tokens added without being special, beginning of sequence, end of sequence.
FAMILIES: dict[str, tuple[tuple[str, ...], tuple[str, ...], str | None, str]] = {
    "tiny": (TINY_TOKENS[:3], TINY_TOKENS[3:], None, "<|im_end|>"),
    "hermes": (
        ("<|begin_of_text|>", "<|im_start|>", "<|im_end|>"),
        TOOL_TAGS,
        "<|begin_of_text|>",
        "<|im_end|>",
    ),
    "llama3": ((*LLAMA_TOKENS, "<|eom_id|>", "<|python_tag|>"), (), "<|begin_of_text|>", "<|eot_id|>"),
    "mistral-v3": (MISTRAL_TOKENS, (), "<s>", "</s>"),
    "mistral-v11": ((*MISTRAL_TOKENS, "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[ARGS]"), (), "<s>", "</s>"),
    "qwen2": (TINY_TOKENS[:3], (), None, "<|im_end|>"),
    "qwen2.5": (TINY_TOKENS[:3], TOOL_TAGS, None, "<|im_end|>"),
    "qwen3": (TINY_TOKENS[:3], TOOL_TAGS + THINK_TAGS, None, "<|im_end|>"),
    "qwen3-2507": (TINY_TOKENS[:3], TOOL_TAGS + THINK_TAGS, None, "<|im_end|>"),
}

_CORPUS = [
    'What is the weather in Paris? {"name": "get_weather", "arguments": {"city": "Paris", "days": 3}}',
    "system user assistant tool name description parameters type object properties required string integer",
    "line\n\nline\n\n\n  indented\n",
]


def byte_level_tokenizer(special: tuple[str, ...], plain: tuple[str, ...] = ()) -> Tokenizer:
    """Byte-level BPE over a few lines of JSON and prose. ``plain`` tokens are added but not special."""
    tokenizer = Tokenizer(models.BPE())
    # Llama 3's and Qwen's way of cutting words: line ends glue to the white space before them.
    words = r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(words), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=512, special_tokens=list(special), initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(_CORPUS * 10, trainer)
    tokenizer.add_tokens(list(plain))
    return tokenizer


@lru_cache
def family_tokenizer(name: str) -> PreTrainedTokenizerFast:
    """A tokenizer such as the template ``name`` is made for."""
    special, plain, begin, end = FAMILIES[name]
    return PreTrainedTokenizerFast(
        tokenizer_object=byte_level_tokenizer(special, plain), bos_token=begin, eos_token=end, pad_token=special[0]
    )


@lru_cache
def family_renderer(name: str) -> Renderer:
    return Renderer(family_tokenizer(name), shipped_template(name))


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Writing more than 2,000 bytes to a file fails, as it does on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.fixture(scope="session")
def tiny_tokenizer() -> PreTrainedTokenizerFast:
    tokenizer = family_tokenizer("tiny")
    tokenizer.chat_template = shipped_template("tiny").source
    return tokenizer


@pytest.fixture(scope="session")
def tiny_renderer(tiny_tokenizer: PreTrainedTokenizerFast) -> Renderer:
    return Renderer(tiny_tokenizer, shipped_template("tiny"))


@pytest.fixture(scope="session")
def tiny_dir(tiny_tokenizer: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tiny")
    tiny_tokenizer.save_pretrained(folder)
    return folder
