"""Parsers read what vLLM reads, say why when they cannot, and never crash."""

import json
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from seatrial.data.conversation import Json, ToolCall
from seatrial.data.parse import PARSERS, Fault, Malformed, Parsed, parse

RECORDED = json.loads((Path(__file__).parent / "vllm_parser_outputs.json").read_text())["outputs"]

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)
CALLS = st.lists(
    st.builds(
        ToolCall, st.from_regex(r"[a-zA-Z]\w{0,8}", fullmatch=True), st.dictionaries(st.text(), VALUES, max_size=4)
    ),
    min_size=1,
    max_size=3,
)


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda row: f"{row['parser']}:{row['text'][:40]!r}")
def test_reads_what_vllm_reads(recorded: dict[str, Json]) -> None:
    """The same prose and calls; where vLLM made no call, either prose too or a reason why it is none."""
    result = parse(recorded["text"], recorded["parser"])
    wanted = [(call["name"], json.loads(call["arguments"])) for call in recorded["calls"]]
    if isinstance(result, Malformed):
        assert not wanted
    else:
        assert "error" not in recorded
        assert [(call.name, call.arguments) for call in result.calls] == wanted
        assert result.content == (recorded["content"] or "")


def dumped(call: ToolCall, key: str = "arguments") -> str:
    return json.dumps({"name": call.name, key: call.arguments}, ensure_ascii=False)


def written(calls: list[ToolCall], parser: str) -> str:
    """The calls in the format of ``parser``."""
    match parser:
        case "hermes":
            return "\n".join(f"<tool_call>\n{dumped(call)}\n</tool_call>" for call in calls)
        case "llama3_json":
            return "; ".join(dumped(call, "parameters") for call in calls)
        case "xlam":
            return f"[{', '.join(dumped(call) for call in calls)}]"
        case "mistral":
            return f"[TOOL_CALLS] [{', '.join(dumped(call) for call in calls)}]"
    raise AssertionError(parser)


@pytest.mark.parametrize("parser", ["hermes", "llama3_json", "xlam", "mistral"])
@given(calls=CALLS)
def test_json_calls_come_back_whatever_is_in_them(parser: str, calls: list[ToolCall]) -> None:
    marks = {"hermes": ["</tool_call>"], "xlam": ["```", "<tool_call>", "[TOOL_CALLS]", "</think>"]}
    assume(not any(mark in dumped(call) for call in calls for mark in marks.get(parser, ["[TOOL_CALLS]"])))
    assert parse(written(calls, parser), parser) == Parsed("", tuple(calls))


@given(
    calls=st.lists(
        st.builds(
            ToolCall,
            st.from_regex(r"[a-zA-Z][a-z]{1,5}_x", fullmatch=True),
            st.dictionaries(st.from_regex(r"[a-zA-Z][a-z]{0,5}_y", fullmatch=True), VALUES, max_size=4),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_python_calls_come_back(calls: list[ToolCall]) -> None:
    listed = ", ".join(
        f"{call.name}({', '.join(f'{name}={value!r}' for name, value in call.arguments.items())})" for call in calls
    )
    assert parse(f"[{listed}]", "pythonic") == Parsed("", tuple(calls))


@pytest.mark.parametrize("parser", sorted(PARSERS))
@given(text=st.text())
def test_text_without_marks_is_prose(parser: str, text: str) -> None:
    if not any(mark in text for mark in "<[{`"):
        assert parse(text, parser) == Parsed(text)


MARKS = [
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[",
    "]",
    "{",
    "}",
    "```",
    "</think>",
    "f(",
    ")",
    "f(a=",
    "'",
    '"',
    "\\ud800",
    "\x00",
    "NaN",
    ":",
    ",",
    "x",
]
FRAGMENTS = st.sampled_from(
    [*MARKS, "```json\n", '{"name": "f", "arguments": {}}', '"name"', '"arguments"', "9" * 5000, "<|python_tag|>", "\n"]
)


@pytest.mark.parametrize("parser", sorted(PARSERS))
@given(pieces=st.lists(FRAGMENTS | st.text(max_size=3), max_size=12))
def test_no_text_crashes_a_parser_and_what_it_reads_can_be_written(parser: str, pieces: list[str]) -> None:
    result = parse("".join(pieces), parser)
    if isinstance(result, Parsed):
        for call in result.calls:
            json.dumps(call.arguments, ensure_ascii=False, allow_nan=False).encode()


@pytest.mark.parametrize("parser", sorted(PARSERS))
@pytest.mark.parametrize("brackets", ["[", "{", '{"a":', "[f(a=", "<tool_call>[", "[TOOL_CALLS]["])
def test_bottomless_nesting_is_malformed_or_prose(parser: str, brackets: str) -> None:
    result = parse(brackets[:-1] + brackets[-1] * 100_000, parser)
    assert isinstance(result, Malformed) or result.calls == ()


@pytest.mark.parametrize(
    ("parser", "text", "fault"),
    [
        ("hermes", "<tool_call>\n{'name': 'f'}\n</tool_call>", Fault.NOT_JSON),
        ("hermes", '<tool_call>{"name": "f", "arguments": "x"}</tool_call>', Fault.ARGUMENTS_NOT_AN_OBJECT),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": NaN}}</tool_call>', Fault.NOT_JSON),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "\\ud800"}}</tool_call>', Fault.NOT_JSON),
        ("llama3_json", '{"parameters": {}}', Fault.NO_NAME),
        ("xlam", '[{"name": "f"}]', Fault.NO_ARGUMENTS),
        ("mistral", '[TOOL_CALLS] {"name": "f"}', Fault.NOT_A_LIST),
        ("mistral", "[TOOL_CALLS]f{oops}", Fault.NOT_JSON),
        ("pythonic", "[f(a=open)]", Fault.ARGUMENT_NOT_A_LITERAL),
    ],
)
def test_the_reason_is_named(parser: str, text: str, fault: Fault) -> None:
    result = parse(text, parser)
    assert isinstance(result, Malformed)
    assert result.reason is fault


def test_an_unknown_parser_is_the_callers_mistake() -> None:
    with pytest.raises(KeyError):
        parse("x", "qwen3")
