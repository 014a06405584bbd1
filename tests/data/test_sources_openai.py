import json
from typing import Any

import pytest

from seatrial.data.conversation import Conversation, Message, Rejection, ToolCall
from seatrial.data.convert import convert_row
from seatrial.data.reason import Reason
from tests.data.rows import OPENAI, TIDE_TOOL, Row, changed

ASK: Row = {"role": "user", "content": "a"}
ANSWER: Row = {"role": "assistant", "content": "b"}


def convert(row: Row) -> Conversation | Rejection:
    return convert_row("openai", 1, json.dumps(row).encode())


def accepted(row: Row) -> Conversation:
    result = convert(row)
    assert isinstance(result, Conversation), result
    return result


def calling(*calls: Any, **fields: Any) -> Row:
    return {"role": "assistant", "content": None, "tool_calls": list(calls), **fields}


def call(arguments: Any = '{"harbour": "Cork"}', id: str | None = "c1", name: str = "get_tide") -> Row:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def answer(content: Any = "3", **fields: Any) -> Row:
    return {"role": "tool", "content": content, **fields}


def row_of(*messages: Row, tools: Any = (TIDE_TOOL,)) -> Row:
    return {"messages": list(messages), "tools": tools}


def test_a_row_keeps_its_ids_and_weights() -> None:
    row = accepted(OPENAI)
    assert row.messages[2] == Message(
        "assistant",
        tool_calls=(
            ToolCall("get_tide", {"harbour": "Brest"}, "call_b"),
            ToolCall("get_tide", {"harbour": "Cork"}, "call_c"),
        ),
    )
    assert row.messages[3:5] == (
        Message("tool", '{"high": "09:10"}', tool_call_id="call_b", name="get_tide"),
        Message("tool", '{"high": "11:40"}', tool_call_id="call_c", name="get_tide"),
    )
    assert [message.weight for message in row.messages if message.role == "assistant"] == [1, 0, 1]
    assert row.repairs == ("responses_reordered",)


def test_trl_columns_without_ids_and_with_nulls_from_arrow() -> None:
    """As TRL's datasets come out of parquet: text where structs would merge, nulls for the keys of other rows."""
    message = {"role": "user", "content": "Cork?", "tool_calls": None, "name": None, "tool_call_id": None}
    arguments = {"harbour": "Cork", "metres": None, "end": None}
    assistant = message | {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"function": {"name": "get_tide", "arguments": arguments}}],
    }
    response = message | {"role": "tool", "content": "3", "name": "get_tide"}
    row = {
        "prompt": [message],
        "completion": [assistant, response, message | {"role": "assistant", "content": "At 3."}],
        "tools": json.dumps([{"type": "function", "function": TIDE_TOOL}]),
    }
    converted = accepted(row)
    assert converted.messages[1].tool_calls == (ToolCall("get_tide", {"harbour": "Cork"}, "call_0"),)
    assert converted.messages[2] == Message("tool", "3", tool_call_id="call_0", name="get_tide")
    assert converted.repairs == ("null_argument_dropped: get_tide.metres", "null_argument_dropped: get_tide.end")


def test_nulls_from_arrow_inside_nested_arguments_go_and_meant_ones_stay() -> None:
    item = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": ["string", "null"]}}}
    tool = {"name": "f", "parameters": {"type": "object", "properties": {"items": {"type": "array", "items": item}}}}
    arguments = {"items": [{"a": "x", "b": None, "c": None}, {"a": None, "b": "y", "c": None}]}
    converted = accepted(row_of(ASK, calling(call(arguments, name="f")), tools=[tool]))
    assert converted.messages[1].tool_calls[0].arguments == {"items": [{"a": "x", "b": None}, {"b": "y"}]}
    assert converted.repairs == ("null_argument_dropped: f.items.c", "null_argument_dropped: f.items.a")


def test_tools_may_be_text_of_each_declaration_or_of_its_parameters() -> None:
    for tools in (
        [json.dumps(TIDE_TOOL)],
        json.dumps([json.dumps(TIDE_TOOL)]),
        [TIDE_TOOL | {"parameters": json.dumps(TIDE_TOOL["parameters"])}],
    ):
        assert accepted(row_of(ASK, calling(call()), tools=tools)).tools[0].parameters == TIDE_TOOL["parameters"]


def test_functions_and_function_call_are_the_older_form() -> None:
    row = {
        "messages": [
            ASK,
            {
                "role": "assistant",
                "content": None,
                "function_call": {"name": "get_tide", "arguments": '{"harbour": "x"}'},
            },
            {"role": "function", "name": "get_tide", "content": "3"},
            ANSWER,
        ],
        "functions": [TIDE_TOOL],
    }
    converted = accepted(row)
    assert converted.messages[2].tool_call_id == converted.messages[1].tool_calls[0].id


def test_content_may_be_parts() -> None:
    parts = [{"type": "text", "text": "Let me "}, {"type": "text", "text": "see."}]
    assert accepted(row_of(ASK, calling(call(), content=parts))).messages[1].content == "Let me see."
    tagged = [
        {"type": "reasoning", "value": "hm"},
        {"type": "text", "value": "Now:"},
        {"type": "tool_call", "value": '{"name": "get_tide", "arguments": {"harbour": "x"}}'},
    ]
    converted = accepted(row_of(ASK, {"role": "assistant", "content": tagged}))
    assert (converted.messages[1].content, len(converted.messages[1].tool_calls)) == ("Now:", 1)
    assert converted.repairs == ("message_field_dropped: reasoning",)


def test_one_message_may_answer_all_parallel_calls() -> None:
    calls = calling(call(id=None), call('{"harbour": "Brest"}', id=None))
    converted = accepted(row_of(ASK, calls, answer('[{"high": 3}, "unknown"]'), ANSWER))
    assert [(m.tool_call_id, m.content) for m in converted.messages[2:4]] == [
        ("call_0", '{"high": 3}'),
        ("call_1", "unknown"),
    ]


def test_what_has_no_place_in_a_record_is_dropped_aloud() -> None:
    converted = accepted(row_of(ASK, ANSWER | {"reasoning_content": "hm", "refusal": None, "audio": {}}))
    assert converted.repairs == ("message_field_dropped: reasoning_content",)


def test_empty_arguments_of_a_tool_that_takes_none() -> None:
    tool = {"name": "now", "parameters": None}
    for arguments in ("", None, "null"):
        converted = accepted(row_of(ASK, calling(call(arguments, name="now")), tools=[tool]))
        assert converted.messages[1].tool_calls[0].arguments == {}
        assert converted.repairs == ("empty_arguments: now",)
    assert accepted(row_of(ASK, calling(call("{}", name="now")), tools=[tool])).repairs == ()


def test_a_tool_message_may_hold_an_object() -> None:
    converted = accepted(row_of(ASK, calling(call()), answer({"high": 3}, tool_call_id="c1"), ANSWER))
    assert converted.messages[2].content == '{"high": 3}'


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        ([], Reason.NO_TURNS),
        (["a"], Reason.WRONG_SHAPE),
        ([{"role": "narrator", "content": "a"}, ANSWER], Reason.UNKNOWN_ROLE),
        ([ASK, {"role": "assistant", "content": 3}], Reason.WRONG_SHAPE),
        ([ASK | {"content": [{"type": "image_url", "image_url": "x"}]}, ANSWER], Reason.WRONG_SHAPE),
        ([ASK, {"role": "assistant"}], Reason.EMPTY_TURN),
        ([ASK, ANSWER | {"weight": 2}], Reason.WRONG_SHAPE),
        ([ASK, ANSWER | {"weight": 0.5}], Reason.WRONG_SHAPE),
        ([ASK, ANSWER | {"weight": True}], Reason.WRONG_SHAPE),
        ([ASK, {"role": "system", "content": "s"}, ANSWER], Reason.ROLE_ORDER),
        ([ASK | {"tool_calls": [call()]}, ANSWER], Reason.ROLE_ORDER),
        ([ASK, calling(call("{harbour: 1}"))], Reason.ARGUMENTS_NOT_JSON),
        ([ASK, calling(call("[1]"))], Reason.ARGUMENTS_NOT_AN_OBJECT),
        ([ASK, calling(call('"{\\"harbour\\": \\"x\\"}"'))], Reason.ARGUMENTS_NOT_AN_OBJECT),
        ([ASK, calling({"type": "custom", "custom": {"name": "x"}})], Reason.MALFORMED_CALL),
        ([ASK, calling("get_tide")], Reason.MALFORMED_CALL),
        ([ASK, calling(call(), call())], Reason.CALL_IDS_DO_NOT_PAIR),
        ([ASK, calling(call(), call(id=None))], Reason.CALL_IDS_DO_NOT_PAIR),
        ([ASK, calling(call()), answer(), ANSWER], Reason.CALL_IDS_DO_NOT_PAIR),
        ([ASK, calling(call()), answer(tool_call_id="c2"), ANSWER], Reason.RESPONSE_WITHOUT_CALL),
        ([ASK, calling(call()), answer(tool_call_id="c1", name="other"), ANSWER], Reason.CALL_IDS_DO_NOT_PAIR),
        ([ASK, calling(call()), ANSWER], Reason.CALL_WITHOUT_RESPONSE),
        ([ASK, calling(call()), answer(tool_call_id="c1")], Reason.LAST_TURN_NOT_ASSISTANT),
    ],
)
def test_messages_with_a_defect_are_rejected_for_it(messages: list[Any], reason: Reason) -> None:
    result = convert(row_of(*messages))
    assert isinstance(result, Rejection)
    assert result.reason == reason


def test_every_turn_may_number_its_calls_anew() -> None:
    turn = [calling(call()), answer("3", tool_call_id="c1")]
    row = accepted(row_of(ASK, *turn, *turn, ANSWER))
    assert [m.tool_call_id for m in row.messages if m.role == "tool"] == ["c1", "c1"]


def test_a_plain_prompt_is_a_question_and_its_completion_the_answer() -> None:
    row = accepted({"prompt": "Cork?", "completion": "[At 3]"})
    assert row.messages == (Message("user", "Cork?"), Message("assistant", "[At 3]"))
    assert row.repairs == ("text_made_a_turn",)
    assert accepted({"prompt": json.dumps([ASK]), "completion": [ANSWER]}).repairs == ()


@pytest.mark.parametrize("row", [{"messages": None}, {"prompt": "a"}, {"completion": "b", "prompt": None}])
def test_a_row_without_turns_is_told_what_it_lacks(row: Row) -> None:
    result = convert(row)
    assert isinstance(result, Rejection)
    assert (result.reason, result.detail) == (Reason.WRONG_SHAPE, "neither messages nor a prompt and its completion")


def test_a_preference_pair_is_rejected_with_what_to_do() -> None:
    result = convert({"chosen": [ASK, ANSWER], "rejected": [ASK, ANSWER]})
    assert isinstance(result, Rejection)
    assert "chosen" in result.detail


def test_a_call_without_declared_tools_is_rejected() -> None:
    row = changed(OPENAI)
    del row["tools"]
    result = convert(row)
    assert isinstance(result, Rejection)
    assert result.reason == Reason.UNDECLARED_TOOL
