"""What holds for every source: any row gives a sound conversation or a rejection, and nothing is lost on the way."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.data.conversation import Conversation, Rejection, decode, encode
from seatrial.data.convert import LONGEST_ROW_BYTES, MOST_MESSAGES, convert_row
from seatrial.data.reason import Reason
from seatrial.data.sources import CONVERTERS, detect
from seatrial.data.wellformed import well_formed
from tests.data.rows import EXAMPLES

SOURCES = sorted(CONVERTERS)
WORDS = (
    *("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<tools>", "</tools>", "<functioncall>"),
    *("<|endoftext|>", "\n\nUSER: ", "\n\nASSISTANT: ", "\n\nFUNCTION RESPONSE: ", "[get_tide(", "harbour", ")]", "{}"),
    *("{'a': 1}", "null", "\\n", "=", ",", "(", "[", "'", '"', "get_tide"),
)
TEXTS = st.text() | st.lists(st.sampled_from(WORDS), max_size=12).map("".join)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
KEYS = st.text() | st.sampled_from(
    sorted({"name", "arguments", "function", "type", "properties", "required", "role", "content", "from", "value"})
)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4))
FIELDS = sorted({key for row in EXAMPLES.values() for key in row} | {"functions", "prompt", "completion", "schema"})


@st.composite
def broken_rows(draw: st.DrawFn, source: str) -> dict[str, Any]:
    """A row of the source with one to three places, at any depth and inside JSON text too, replaced or cut off."""
    row = copy.deepcopy(EXAMPLES[source if source in EXAMPLES else draw(st.sampled_from(sorted(EXAMPLES)))])
    for _ in range(draw(st.integers(1, 3))):
        broken: Any = draw(_broken(row))
        row = broken if isinstance(broken, dict) else row
    return row


@st.composite
def _broken(draw: st.DrawFn, value: Any) -> Any:
    deeper = draw(st.integers(0, 5)) > 0
    if isinstance(value, dict) and value and deeper:
        key = draw(st.sampled_from(sorted(value)))
        if draw(st.integers(0, 4)) == 0:
            return {name: inner for name, inner in value.items() if name != key}
        return value | {key: draw(_broken(value[key]))}
    if isinstance(value, list) and value and deeper:
        index = draw(st.integers(0, len(value) - 1))
        if draw(st.integers(0, 4)) == 0:
            return value[:index] + value[index + 1 :] * draw(st.integers(0, 2))
        return [*value[:index], draw(_broken(value[index])), *value[index + 1 :]]
    if isinstance(value, str) and value:
        try:
            inner = json.loads(value)
        except ValueError:
            inner = None
        if isinstance(inner, (dict, list)) and deeper:
            return json.dumps(draw(_broken(inner)))
        cut = draw(st.integers(0, len(value)))
        return value[:cut] + draw(st.sampled_from(["", value[cut + 1 :], draw(TEXTS) + value[cut:]]))
    return draw(VALUES)


def assert_sound(result: Conversation | Rejection) -> None:
    """A rejection has a known reason; a conversation is well formed, and disk gives back what it was given."""
    if isinstance(result, Rejection):
        assert result.reason in list(Reason)
        return
    assert well_formed(result) == result
    assert decode(encode(result)) == result


@pytest.mark.parametrize("source", SOURCES)
@given(row=st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=5))
@settings(max_examples=120, deadline=None)
def test_any_values_under_known_keys_convert_or_are_rejected(source: str, row: dict[str, Any]) -> None:
    assert isinstance(CONVERTERS[source](row), (Conversation, Rejection))


@pytest.mark.parametrize("source", SOURCES)
@given(data=st.data())
@settings(max_examples=200, deadline=None)
def test_broken_rows_convert_or_are_rejected(source: str, data: st.DataObject) -> None:
    row = data.draw(broken_rows(source))
    assert isinstance(CONVERTERS[source](row), (Conversation, Rejection))
    assert_sound(convert_row(source, 1, json.dumps(row).encode()))


@pytest.mark.parametrize("source", SOURCES)
@given(text=st.binary(max_size=60) | VALUES.map(lambda value: json.dumps(value).encode()))
@settings(max_examples=60, deadline=None)
def test_any_bytes_convert_or_are_rejected(source: str, text: bytes) -> None:
    assert_sound(convert_row(source, 1, text))


@pytest.mark.parametrize("source", sorted(EXAMPLES))
def test_the_example_of_each_format_converts_and_is_detected(source: str) -> None:
    row = EXAMPLES[source]
    assert detect(row) == source
    result = convert_row(source, 3, json.dumps(row).encode())
    assert isinstance(result, Conversation)
    assert_sound(result)
    assert result.source == source
    assert result.id == (str(row["id"]) if "id" in row else f"{source}-3")
    assert convert_row("auto", 3, json.dumps(row).encode()) == result


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b'{"chat": "USER: hi', Reason.NOT_JSON),
        (b'{"a": NaN}', Reason.NOT_JSON),
        (b"\xff\xfe", Reason.NOT_JSON),
        (b'["a"]', Reason.NOT_AN_OBJECT),
        (b"null", Reason.NOT_AN_OBJECT),
        (b'{"text": "hi"}', Reason.UNKNOWN_FORMAT),
        (b"{}", Reason.UNKNOWN_FORMAT),
        (b'{"a": ' + b"[" * 5000 + b"]" * 5000 + b"}", Reason.NESTED_TOO_DEEP),
    ],
)
def test_rows_in_no_format_are_rejected_for_what_they_are(text: bytes, reason: Reason) -> None:
    result = convert_row("auto", 1, text)
    assert isinstance(result, Rejection)
    assert result.reason == reason


def test_rows_beyond_what_any_model_reads_are_rejected() -> None:
    long = {"messages": [{"role": "user", "content": "a" * LONGEST_ROW_BYTES}, {"role": "assistant", "content": "b"}]}
    many = {"messages": [{"role": role, "content": "a"} for role in ("user", "assistant")] * (MOST_MESSAGES // 2 + 1)}
    for row in (long, many):
        result = convert_row("auto", 1, json.dumps(row).encode())
        assert isinstance(result, Rejection)
        assert result.reason == Reason.TOO_LONG
    fitting = {"messages": many["messages"][:MOST_MESSAGES]}
    assert isinstance(convert_row("auto", 1, json.dumps(fitting).encode()), Conversation)


@pytest.mark.parametrize("source", sorted(EXAMPLES))
def test_rows_that_rest_on_images_are_rejected(source: str) -> None:
    assert isinstance(convert_row(source, 1, json.dumps(EXAMPLES[source] | {"images": []}).encode()), Conversation)
    result = convert_row(source, 1, json.dumps(EXAMPLES[source] | {"images": ["a.png"]}).encode())
    assert isinstance(result, Rejection)
    assert result.reason == Reason.WRONG_SHAPE


@pytest.mark.parametrize("source", SOURCES)
def test_values_nested_beyond_reading_inside_text_are_rejected(source: str) -> None:
    deep = "[" * 5000 + "]" * 5000
    rows: list[dict[str, Any]] = [
        {"system": "SYSTEM: Use -\n{" + f'"a": {deep}' + "}", "chat": "USER: a"},
        {"query": "q", "answers": deep, "tools": deep},
        {
            "conversations": [
                {"from": "human", "value": "a"},
                {"from": "gpt", "value": f"<tool_call>{deep}</tool_call>"},
            ]
        },
        {"messages": deep, "tools": deep},
    ]
    assert all(isinstance(convert_row(source, 1, json.dumps(row).encode()), Rejection) for row in rows)


@pytest.mark.parametrize("filler", ["\n", "\\n", " ", "[", "<tool_call>", "</tool_call><tool_call>", "'", "("])
@pytest.mark.parametrize("source", ["glaive", "hermes", "toolace"])
def test_long_runs_do_not_take_quadratic_time(source: str, filler: str) -> None:
    """40,000 repetitions finish at once; anything quadratic would take minutes."""
    run = filler * 40_000
    row = copy.deepcopy(EXAMPLES[source])
    if source == "glaive":
        row["chat"] = f"USER: a{run}\n\nASSISTANT: <functioncall> {run} <|endoftext|>"
    else:
        row["conversations"] = [
            {"from": "user", "value": run},
            {"from": "assistant", "value": f"[Tide Tables({run}<tool_call>{run}"},
        ]
    assert isinstance(CONVERTERS[source](row), (Conversation, Rejection))
