"""Our templates beside the stock ones, how a suiting one is found, and what is written beside an exported model."""

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from seatrial.data.conversation import Message, Rejection, ToolCall, template_messages, template_tools
from seatrial.data.render import Rendered, Renderer, TrainOn, load_renderer
from seatrial.data.template import (
    MANIFEST,
    SHIPPED,
    Template,
    read_written_template,
    shipped_template,
    stock_template,
    suiting_template,
    write_template,
)
from seatrial.data.validate import RowCheck, check_row
from seatrial.errors import IntegrityError, UsageError
from tests.data.conftest import family_renderer, family_tokenizer
from tests.data.test_render import CASES, CONVERSATION, WEATHER, assistant, conversation, result, user

TRL = find_spec("trl")
needs_trl = pytest.mark.skipif(TRL is None, reason="trl, which bundles copies of the stock templates, is not installed")


def stock_source(name: str) -> str:
    assert TRL is not None
    assert TRL.origin is not None
    return (Path(TRL.origin).parent / "chat_templates" / f"{name}.jinja").read_text()


def stock_tokenizer(family: str, name: str) -> PreTrainedTokenizerFast:
    """A tokenizer of ``family`` that carries the stock template ``name``."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=family_tokenizer(family).backend_tokenizer,
        bos_token=family_tokenizer(family).bos_token,
        eos_token=family_tokenizer(family).eos_token,
    )
    tokenizer.chat_template = stock_source(name)
    return tokenizer


TIDY = [case for case in CASES if case not in ("spacious text", "quoted name", "tags in arguments")]
"""Cases that stock templates write as we do: they neither trim prose nor escape names and tags."""


@needs_trl
@pytest.mark.parametrize(("ours", "theirs"), [("qwen2.5", "qwen2_5"), ("qwen3-2507", "qwen3_instruct_2507")])
@pytest.mark.parametrize("case", TIDY)
def test_served_text_equals_the_stock_template(ours: str, theirs: str, case: str) -> None:
    row, tokenizer = CASES[case], family_tokenizer(ours)
    for messages, prompt in ((row.messages, False), (row.messages[:-1], True)):
        texts = {
            tokenizer.apply_chat_template(
                template_messages(messages),
                tools=template_tools(row.tools),  # type: ignore[arg-type]
                chat_template=source,
                tokenize=False,
                add_generation_prompt=prompt,
            )
            for source in (shipped_template(ours).source, stock_source(theirs))
        }
        assert len(texts) == 1


@needs_trl
@pytest.mark.parametrize("case", ["single", "text beside a call", "nested arguments"])
def test_qwen3_equals_stock_without_thinking_on_the_first_answer(case: str) -> None:
    row, tokenizer = CASES[case], family_tokenizer("qwen3")
    for messages, prompt in ((row.messages, False), (row.messages[:-1], True)):
        texts = {
            tokenizer.apply_chat_template(
                template_messages(messages),
                tools=template_tools(row.tools),  # type: ignore[arg-type]
                chat_template=source,
                tokenize=False,
                add_generation_prompt=prompt,
                enable_thinking=False,
            )
            for source in (shipped_template("qwen3").source, stock_source("qwen3"))
        }
        assert len(texts) == 1


@needs_trl
@pytest.mark.parametrize("name", SHIPPED)
def test_trl_can_train_with_our_templates(name: str) -> None:
    from trl.chat_template_utils import (
        has_generation_markers,
        is_chat_template_prefix_preserving,
        supports_tool_calling,
    )

    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=family_tokenizer(name).backend_tokenizer,
        bos_token="<s>",
        eos_token=family_tokenizer(name).eos_token,
    )
    tokenizer.chat_template = shipped_template(name).source
    assert has_generation_markers(tokenizer.chat_template)
    assert is_chat_template_prefix_preserving(tokenizer)
    assert supports_tool_calling(tokenizer)


@needs_trl
@pytest.mark.parametrize(
    ("family", "name", "stop", "parser"),
    [
        ("qwen2.5", "qwen2_5", "<|im_end|>", "hermes"),
        ("qwen3-2507", "qwen3_instruct_2507", "<|im_end|>", "hermes"),
        ("qwen3", "qwen3", "<|im_end|>", "hermes"),
        ("llama3", "llama3_1", "<|eot_id|>", "llama3_json"),
        ("llama3", "llama3_2", "<|eot_id|>", "llama3_json"),
        ("llama3", "llama3", "<|eot_id|>", "none"),
    ],
)
def test_the_format_of_a_stock_template_is_found_by_rendering(family: str, name: str, stop: str, parser: str) -> None:
    template = stock_template(stock_tokenizer(family, name))
    assert (template.stops, template.parser) == ((stop,), parser)


@lru_cache
def stock_renderer(family: str, name: str) -> Renderer:
    tokenizer = stock_tokenizer(family, name)
    return Renderer(tokenizer, stock_template(tokenizer))


@needs_trl
def test_stock_llama_31_writes_single_calls_and_refuses_the_rest() -> None:
    renderer = stock_renderer("llama3", "llama3_1")
    assert isinstance(renderer.render(CASES["single"]), Rendered)
    several = renderer.render(CASES["parallel"])
    assert isinstance(several, Rejection)
    assert "only supports single tool-calls" in several.detail
    beside = renderer.render(CASES["text beside a call"])
    assert isinstance(beside, Rejection)
    assert beside.reason == "turn does not parse back"


@needs_trl
def test_stock_llama_3_never_trains_an_empty_answer_in_place_of_a_call() -> None:
    renderer = stock_renderer("llama3", "llama3")
    refused = renderer.render(CASES["single"])
    assert isinstance(refused, Rejection)
    assert refused.detail == "message 1: it is empty"
    assert isinstance(renderer.render(CASES["no tools"]), Rendered)


@needs_trl
def test_stock_qwen3_is_trained_on_the_last_answer_only() -> None:
    renderer = stock_renderer("qwen3", "qwen3")
    several = conversation(user("a"), assistant("one"), user("b"), assistant("two"))
    everything = renderer.render(several)
    assert isinstance(everything, Rejection)
    assert everything.reason == "template rewrites earlier turns"
    assert isinstance(renderer.render(several, TrainOn.LAST), Rendered)
    called = conversation(user("a"), assistant("", ToolCall("f", {})), result("1"), assistant("one"))
    assert isinstance(renderer.render(called, TrainOn.LAST), Rendered)


XLAM_LIKE = """{{- bos_token }}{% for m in messages %}
    {{- '<|start_header_id|>' + m.role + '<|end_header_id|>\n\n' }}
    {%- if m.tool_calls %}
        {{- '[' }}
        {%- for call in m.tool_calls %}
            {{- {'name': call.function.name, 'arguments': call.function.arguments} | tojson }}
            {{- ', ' if not loop.last }}
        {%- endfor %}
        {{- ']<|eot_id|>' }}
    {%- else %}
        {{- m.content + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"""
"""The calls of a turn as one bare JSON array, as the models of the xLAM-2 family write them."""


def test_a_stock_template_that_writes_arrays_is_read_by_the_xlam_parser() -> None:
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=family_tokenizer("llama3").backend_tokenizer, bos_token="<|begin_of_text|>"
    )
    tokenizer.chat_template = XLAM_LIKE
    renderer = Renderer(tokenizer, stock_template(tokenizer))
    assert renderer.parser == "xlam"
    assert check_row(renderer, CASES["parallel"]) == RowCheck(True, True)
    beside = renderer.render(CASES["text beside a call"])
    assert isinstance(beside, Rejection)
    assert beside.reason == "turn does not parse back"
    # The parser takes any JSON in a code block for calls, which is why no template of ours is served by it.
    example = 'An example:\n```json\n[{"name": "f", "arguments": {}}]\n```'
    prose = renderer.render(conversation(user("How do I call it?"), assistant(example)))
    assert isinstance(prose, Rejection)
    assert prose.reason == "turn does not parse back"
    for name in SHIPPED:
        assert check_row(family_renderer(name), conversation(user("How?"), assistant(example))) == RowCheck(True, True)


STOCK_RENDERERS = [("llama3", "llama3_1"), ("llama3", "llama3"), ("qwen2.5", "qwen2_5"), ("qwen3", "qwen3")]


@needs_trl
@pytest.mark.parametrize(("family", "name"), STOCK_RENDERERS)
@given(row=st.data())
def test_what_is_accepted_with_a_stock_template_is_served_as_trained(
    family: str, name: str, row: st.DataObject
) -> None:
    drawn, renderer = row.draw(CONVERSATION), stock_renderer(family, name)
    for train_on in (TrainOn.ALL, TrainOn.LAST):
        check = check_row(renderer, drawn, train_on)
        assert (check.mask_ok and check.round_trip_ok) or isinstance(renderer.render(drawn, train_on), Rejection)


QWEN = {"<|im_start|>": 1, "<|im_end|>": 2, "<|endoftext|>": 151643}
LLAMA = {"<|start_header_id|>": 1, "<|eot_id|>": 2}


@pytest.mark.parametrize(
    ("vocabulary", "stock", "name"),
    [
        (LLAMA, "", "llama3"),
        (LLAMA | {"<|python_tag|>": 3}, "anything", "llama3"),
        (LLAMA | {"<|im_start|>": 1, "<|im_end|>": 2}, "You are a function calling AI model.", "hermes"),
        ({"[TOOL_CALLS]": 1}, "", "mistral-v3"),
        ({"[TOOL_CALLS]": 1, "[ARGS]": 2}, "", "mistral-v11"),
        (QWEN, "", "qwen2"),
        (QWEN, "You are Qwen, created by Alibaba Cloud.", "qwen2.5"),
        (QWEN | {"<think>": 3}, "", "qwen3"),
        (QWEN | {"<think>": 3}, "<think>", "qwen3"),
        (QWEN | {"<think>": 3}, "<tool_call>", "qwen3-2507"),
        (QWEN | {"<think>": 3}, "<function=f>", None),
        (QWEN | {"<|endoftext|>": 0}, "", None),
        ({"<pad>": 0}, "", None),
        ({"<pad>": 0}, shipped_template("tiny").source, "tiny"),
    ],
)
def test_the_suiting_template_is_told_by_control_tokens(
    vocabulary: dict[str, int], stock: str, name: str | None
) -> None:
    assert suiting_template(vocabulary, stock) == name


@pytest.mark.parametrize("name", SHIPPED)
def test_what_is_written_beside_a_model_is_read_back(name: str, tmp_path: Path) -> None:
    renderer = family_renderer(name)
    renderer.tokenizer.save_pretrained(tmp_path)
    write_template(renderer.template, tmp_path)
    assert read_written_template(tmp_path) == renderer.template
    loaded = load_renderer(tmp_path)
    assert loaded.template == renderer.template
    assert loaded.tokenizer.chat_template == renderer.template.source
    assert loaded.prompt((Message("user", "Hi"),), (WEATHER,)).tolist() == (
        renderer.prompt((Message("user", "Hi"),), (WEATHER,)).tolist()
    )


def test_a_template_changed_after_export_is_an_integrity_error(tmp_path: Path) -> None:
    write_template(shipped_template("tiny"), tmp_path)
    (tmp_path / "chat_template.jinja").write_text("{{ messages }}")
    with pytest.raises(IntegrityError, match=f"is not the one its manifest {MANIFEST} names"):
        read_written_template(tmp_path)


def test_vllm_is_told_the_parser() -> None:
    assert shipped_template("llama3").vllm_arguments == (
        *("--chat-template", "chat_template.jinja"),
        *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
    )
    assert "--tokenizer-mode" in shipped_template("mistral-v3").vllm_arguments
    assert "--tool-call-parser" not in Template("stock", "", (), "none").vllm_arguments


def test_a_tokenizer_without_a_template_or_a_stop_is_refused() -> None:
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=family_tokenizer("tiny").backend_tokenizer)
    with pytest.raises(UsageError, match="carries no chat template; choose one of: tiny"):
        stock_template(tokenizer)
    tokenizer.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    with pytest.raises(UsageError, match="writes no stop token"):
        stock_template(tokenizer)
