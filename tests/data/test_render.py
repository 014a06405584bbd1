"""What is rendered is what is served: for every shipped template, any conversation, every turn."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from seatrial.data.conversation import (
    Conversation,
    Json,
    Message,
    Rejection,
    Tool,
    ToolCall,
    template_messages,
    template_tools,
)
from seatrial.data.parse import Parsed, parse
from seatrial.data.render import Rendered, Renderer, TrainOn, load_renderer
from seatrial.data.template import SHIPPED, Template, shipped_template
from seatrial.data.validate import answers
from seatrial.errors import UsageError
from tests.data.conftest import FAMILIES, MISTRAL_TOKENS, family_renderer, family_tokenizer

WEATHER = Tool(
    "get_weather",
    "The weather in a city.",
    {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
NESTED: dict[str, Json] = {
    "q": 'she said "hi"\n\tünïcödé 漢字 😀',
    "deep": {"a": [1, {"b": None}], "e": {}},
    "n": -1.5e-7,
}


def user(text: str) -> Message:
    return Message("user", text)


def assistant(text: str = "", *calls: ToolCall, weight: float = 1.0) -> Message:
    return Message("assistant", text, calls, weight=weight)


def result(text: str, call_id: str = "call_0") -> Message:
    return Message("tool", text, tool_call_id=call_id)


def conversation(*messages: Message, tools: tuple[Tool, ...] = (WEATHER,)) -> Conversation:
    return Conversation("c", "test", messages, tools)


CASES = {
    "single": conversation(user("Paris?"), assistant("", ToolCall("get_weather", {"city": "Paris"}))),
    "parallel": conversation(
        user("Paris and Rome?"),
        assistant("", ToolCall("get_weather", {"city": "Paris"}), ToolCall("get_weather", {"city": "Rome"})),
        result('{"t": 20}'),
        result('{"t": 25}', "call_1"),
        assistant("20 and 25 degrees."),
    ),
    "text beside a call": conversation(
        Message("system", "Be brief."),
        user("Paris?"),
        assistant("Let me look.", ToolCall("get_weather", {"city": "P"})),
    ),
    "nested arguments": conversation(user("Go."), assistant("", ToolCall("get_weather", NESTED))),
    "empty arguments": conversation(user("Go."), assistant("", ToolCall("now", {}), ToolCall("now", {}))),
    "tags in arguments": conversation(
        user("Escape </tool_call>."),
        assistant("", ToolCall("f", {"x": "a</tool_call>b<tool_call>", "</tool_call>": 1})),
    ),
    "two answers in a row": conversation(user("Hi"), assistant("Hello."), assistant("Anything else?")),
    "empty thought": conversation(user("Hi"), assistant("<think>\n\n</think>\n\nHello")),
    "quoted name": conversation(user("Go."), assistant("", ToolCall("a.b/c-d", {"k": "\\"}))),
    "no tools": conversation(user("Hi"), assistant("Hello!"), user("\n Bye \n\n"), assistant("Bye."), tools=()),
    "spacious text": conversation(user("Hi"), assistant("\n\n  Line one\n\n\nline two  \n")),
    "many turns": conversation(
        Message("system", "You are terse."),
        user("Paris?"),
        assistant("", ToolCall("get_weather", {"city": "Paris"})),
        result("22"),
        assistant("22 degrees."),
        user("And Rome?"),
        assistant("Looking.", ToolCall("get_weather", {"city": "Rome"})),
        result("30"),
        assistant("30."),
    ),
}


def accepted(rendered: Rendered | Rejection) -> Rendered:
    assert isinstance(rendered, Rendered), rendered
    return rendered


def trained_runs(rendered: Rendered) -> list[tuple[int, int]]:
    """Start and end of each unbroken run of trained tokens."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], rendered.trained, [False]]).astype(int))).tolist()
    return list(zip(edges[::2], edges[1::2], strict=True))


def check_served(renderer: Renderer, row: Conversation, rendered: Rendered) -> None:
    """Every trained answer is one assistant turn, ends with a stop token, follows its own prompt, and reads back."""
    turns = [i for i, message in enumerate(row.messages) if message.role == "assistant" and message.weight]
    runs = answers(renderer, rendered)  # Mistral writes nothing between two of them in a row
    assert len(runs) == len(turns)
    for turn, (start, end) in zip(turns, runs, strict=True):
        assert rendered.ids[:start].tolist() == renderer.prompt(row.messages[:turn], row.tools).tolist()
        assert rendered.ids[end - 1] in renderer.stop_ids
        assert not np.isin(rendered.ids[start : end - 1], renderer.stop_ids).any()
        answer = parse(renderer.decode(rendered.ids[start : end - 1]), renderer.parser)
        assert isinstance(answer, Parsed)
        assert answer.content.strip() == row.messages[turn].content.strip()
        assert [(c.name, c.arguments) for c in answer.calls] == [
            (c.name, c.arguments) for c in row.messages[turn].tool_calls
        ]


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("case", CASES)
def test_every_template_trains_what_it_serves(name: str, case: str) -> None:
    renderer, row = family_renderer(name), CASES[case]
    rendered = accepted(renderer.render(row))
    check_served(renderer, row, rendered)


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("case", CASES)
def test_tokens_and_mask_equal_those_of_transformers(name: str, case: str) -> None:
    """An oracle that knows nothing of prefixes: the ``{% generation %}`` marks of the same template."""
    renderer, row = family_renderer(name), CASES[case]
    oracle: Json = renderer.tokenizer.apply_chat_template(
        template_messages(row.messages),
        tools=template_tools(row.tools),  # type: ignore[arg-type]
        chat_template=renderer.template.source,
        return_dict=True,
        return_assistant_tokens_mask=True,
    )
    rendered = accepted(renderer.render(row))
    assert rendered.ids.tolist() == oracle["input_ids"]
    assert rendered.trained.tolist() == [bool(mask) for mask in oracle["assistant_masks"]]


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("case", CASES)
def test_every_template_writes_a_turn_whatever_follows_it(name: str, case: str) -> None:
    renderer, row = family_renderer(name), CASES[case]

    def text(messages: tuple[Message, ...], *, prompt: bool) -> str:
        written = renderer.tokenizer.apply_chat_template(
            template_messages(messages),
            tools=template_tools(row.tools),  # type: ignore[arg-type]
            chat_template=renderer.template.source,
            tokenize=False,
            add_generation_prompt=prompt,
        )
        return str(written)

    assert renderer.template.is_shipped
    whole = text(row.messages, prompt=False)
    for i, message in enumerate(row.messages):
        if message.role == "assistant":
            assert whole.startswith(text(row.messages[:i], prompt=True))
            assert whole.startswith(text(row.messages[: i + 1], prompt=False))


@pytest.mark.parametrize("name", [name for name, family in FAMILIES.items() if family[2]])
def test_the_sequence_begins_once(name: str) -> None:
    renderer = family_renderer(name)
    ids = accepted(renderer.render(CASES["many turns"])).ids
    assert (ids == renderer.tokenizer.bos_token_id).tolist() == [True] + [False] * (len(ids) - 1)


MARKS = ("<", "[")
TEXT = st.text(max_size=12).map(lambda text: "".join(c for c in text if c not in MARKS))
ANY_TEXT = TEXT | st.text("</_>tolca ", max_size=3).map(lambda text: f"<tool_call>{text}</tool_call>")
VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(ANY_TEXT, inner, max_size=2),
    max_leaves=4,
)
CALL = st.builds(
    ToolCall, st.from_regex(r"[a-z][\w.]{0,8}", fullmatch=True), st.dictionaries(ANY_TEXT, VALUE, max_size=3)
)
ANSWER = st.builds(Message, st.just("assistant"), TEXT, st.lists(CALL, max_size=2).map(tuple)).filter(
    lambda message: bool(message.content.strip() or message.tool_calls)
)
EXCHANGE = st.tuples(st.builds(Message, st.just("user"), TEXT), ANSWER)
CONVERSATION = st.builds(
    lambda exchanges, system: Conversation(
        "c",
        "test",
        (*([Message("system", system)] if system else []), *(m for pair in exchanges for m in pair)),
        (WEATHER,),
    ),
    st.lists(EXCHANGE, min_size=1, max_size=2),
    TEXT,
)


@pytest.mark.parametrize("name", SHIPPED)
@given(row=CONVERSATION)
def test_any_conversation_without_marks_is_rendered_faithfully(name: str, row: Conversation) -> None:
    renderer = family_renderer(name)
    check_served(renderer, row, accepted(renderer.render(row)))


ANYTHING = st.sampled_from(
    ["<|im_end|>", "<|eot_id|>", "</s>", "<tool_call>", "</tool_call>", "[TOOL_CALLS]"]
) | st.text(max_size=6)
ANY_MESSAGE = st.builds(
    Message,
    st.sampled_from(["system", "user", "assistant", "tool"]),
    st.lists(ANYTHING, max_size=3).map("".join),
    st.lists(st.builds(ToolCall, ANYTHING, st.dictionaries(ANYTHING, ANYTHING, max_size=2)), max_size=2).map(tuple),
)


@pytest.mark.parametrize("name", SHIPPED)
@given(messages=st.lists(ANY_MESSAGE, max_size=4).map(tuple), train_on=st.sampled_from(TrainOn))
def test_no_conversation_crashes_and_none_is_rendered_falsely(
    name: str, messages: tuple[Message, ...], train_on: TrainOn
) -> None:
    renderer = family_renderer(name)
    rendered = renderer.render(Conversation("c", "test", messages), train_on)
    if isinstance(rendered, Rendered) and train_on is TrainOn.ALL:
        assume(not any(message.tool_calls and message.role != "assistant" for message in messages))
        check_served(renderer, Conversation("c", "test", messages), rendered)


def test_last_trains_the_last_answer_only(tiny_renderer: Renderer) -> None:
    row = CASES["many turns"]
    everything, last = (accepted(tiny_renderer.render(row, on)) for on in (TrainOn.ALL, TrainOn.LAST))
    assert everything.ids.tolist() == last.ids.tolist()
    assert trained_runs(last) == trained_runs(everything)[-1:]


def test_text_trains_every_token_but_the_first(tiny_renderer: Renderer) -> None:
    rendered = accepted(tiny_renderer.render(CASES["many turns"], TrainOn.TEXT))
    assert not rendered.trained[0]
    assert rendered.trained[1:].all()


def test_weight_zero_takes_a_turn_out(tiny_renderer: Renderer) -> None:
    row = conversation(user("a"), assistant("one", weight=0.0), user("b"), assistant("two"))
    runs = trained_runs(rendered := accepted(tiny_renderer.render(row)))
    assert [tiny_renderer.decode(rendered.ids[start:end]) for start, end in runs] == ["two<|im_end|>"]


@pytest.mark.parametrize("name", ["tiny", "mistral-v11"])
def test_a_long_row_is_cut_after_an_answer(name: str) -> None:
    renderer, row = family_renderer(name), CASES["many turns"]
    whole = accepted(renderer.render(row))
    runs = trained_runs(whole)
    for length in range(len(whole.ids) + 2):
        fitting = [end for _, end in runs if end <= length]
        cut = whole.cut_to(length)
        assert (cut is None) == (not fitting)
        if cut is not None:
            assert cut.ids.tolist() == whole.ids[: fitting[-1]].tolist()
            assert trained_runs(cut) == runs[: len(fitting)]
            assert cut.ids[-1] in renderer.stop_ids


def test_rows_without_a_trained_answer_cannot_be_cut(tiny_renderer: Renderer) -> None:
    assert accepted(tiny_renderer.render(conversation(user("a"), assistant("b", weight=0.0)))).cut_to(1000) is None


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        (conversation(user("end <|im_end|> it"), assistant("no")), "control token in text"),
        (conversation(user("a"), assistant("", ToolCall("f", {"x": "<|im_start|>"}))), "control token in text"),
        (conversation(user("a"), assistant("  ")), "turn does not parse back"),
        (conversation(user("a"), assistant("write <tool_call> then")), "turn does not parse back"),
        (conversation(assistant("Hello!"), user("Hi"), assistant("Yes?")), "assistant speaks first"),
        (conversation(user("Hi"), assistant("Yes?", weight=0.5)), "weight is neither 0 nor 1"),
        (conversation(), "refused by the template or the tokenizer"),
        (conversation(user("a"), assistant("\ud800")), "refused by the template or the tokenizer"),
    ],
)
def test_rows_that_cannot_be_served_are_refused(tiny_renderer: Renderer, row: Conversation, reason: str) -> None:
    rendered = tiny_renderer.render(row)
    assert isinstance(rendered, Rejection)
    assert rendered.reason == reason


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        # The prompt ends with a line end that the answer's own line ends merge with.
        (
            "{% for m in messages %}{{ m.role + ':\n' + m.content + '<|im_end|>' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ 'assistant:\n' }}{% endif %}",
            "prompt tokenised differently",
        ),
        (
            "{% for m in messages %}{{ m.role + ':' + m.content }}{% endfor %}"
            "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}",
            "no stop token after the turn",
        ),
        (
            "{{ messages | length }}{% for m in messages %}{{ m.role + ':' + m.content + '<|im_end|>' }}{% endfor %}"
            "{% if add_generation_prompt %}{{ 'assistant:' }}{% endif %}",
            "template rewrites earlier turns",
        ),
        ("{{ messages[0].content.nothing.there }}", "refused by the template or the tokenizer"),
    ],
)
def test_templates_that_cannot_be_trained_with_are_found_out(source: str, reason: str) -> None:
    renderer = Renderer(family_tokenizer("tiny"), Template("test", source, ("<|im_end|>",), "hermes"))
    rendered = renderer.render(conversation(user("Hi"), assistant("\n\nHello")))
    assert isinstance(rendered, Rejection)
    assert rendered.reason == reason


def test_sentencepiece_like_tokenizers_are_rendered_too() -> None:
    """Mistral's older tokenizers write a space as a letter and put one before the first word."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="first")
    letters = sorted({chr(c) for c in range(32, 127)} | {"\n", "é", "漢"})
    trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=["<unk>", *MISTRAL_TOKENS], initial_alphabet=letters)
    tokenizer.train_from_iterator(["What is the weather in Paris?", '[{"name": "get_weather"}]'] * 5, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")
    renderer = Renderer(fast, shipped_template("mistral-v3"))
    for case in ("parallel", "text beside a call", "many turns"):
        rendered = accepted(renderer.render(CASES[case]))
        check_served(renderer, CASES[case], rendered)


def test_a_renderer_travels_to_other_processes(tiny_renderer: Renderer) -> None:
    row = CASES["parallel"]
    here = accepted(tiny_renderer.render(row))
    there = accepted(pickle.loads(pickle.dumps(tiny_renderer)).render(row))
    assert there.ids.tolist() == here.ids.tolist()


def test_prompts_the_template_refuses_are_the_users_mistake() -> None:
    with pytest.raises(UsageError, match="chat template 'mistral-v3' refuses these messages: a system message"):
        family_renderer("mistral-v3").prompt((user("Hi"), Message("system", "late")))


def test_load_renderer(tiny_dir: Path, tmp_path: Path) -> None:
    loaded = load_renderer(tiny_dir)
    assert loaded.stop_ids == (loaded.tokenizer.convert_tokens_to_ids("<|im_end|>"),)
    assert loaded.template == shipped_template("tiny")
    assert load_renderer(tiny_dir, "qwen3").template == shipped_template("qwen3")
    with pytest.raises(UsageError, match="no tokenizer can be loaded"):
        load_renderer(tmp_path)
    with pytest.raises(UsageError, match="no chat template called 'qwen9'; known: stock, tiny"):
        load_renderer(tiny_dir, "qwen9")
    with pytest.raises(UsageError, match=r"'llama3' ends turns with <\|eot_id\|>, unknown to its tokenizer"):
        load_renderer(tiny_dir, "llama3")
