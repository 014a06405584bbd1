import json
from typing import Any

import pytest

from seatrial.data.conversation import Conversation, Message, Rejection, ToolCall
from seatrial.data.convert import convert_row
from seatrial.data.reason import Reason
from tests.data.rows import SHAREGPT, Row, changed

CALL = json.dumps({"name": "get_tide", "arguments": {"harbour": "Cork"}})
ROUTE = json.dumps({"name": "plan_route", "arguments": {"start": "Cork", "end": "Brest"}})


def convert(*turns: tuple[str, Any], **fields: Any) -> Conversation | Rejection:
    conversations = [{"from": speaker, "value": value} for speaker, value in turns]
    row: Row = changed(SHAREGPT, conversations=conversations, **{"system": None} | fields)
    return convert_row("sharegpt", 1, json.dumps(row).encode())


def accepted(*turns: tuple[str, Any], **fields: Any) -> Conversation:
    result = convert(*turns, **fields)
    assert isinstance(result, Conversation), result
    return result


def test_parallel_calls_and_one_list_of_responses_are_paired() -> None:
    row = convert_row("sharegpt", 1, json.dumps(SHAREGPT).encode())
    assert isinstance(row, Conversation)
    assert row.messages == (
        Message("system", "You advise sailors."),
        Message("user", "When is high tide at Brest, and how do I get there from Cork?"),
        Message(
            "assistant",
            tool_calls=(
                ToolCall("get_tide", {"harbour": "Brest"}, "call_0"),
                ToolCall("plan_route", {"start": "Cork", "end": "Brest"}, "call_1"),
            ),
        ),
        Message("tool", '{"high": "09:10"}', tool_call_id="call_0", name="get_tide"),
        Message("tool", '{"miles": 290}', tool_call_id="call_1", name="plan_route"),
        Message("assistant", "At 09:10; it is 290 miles."),
    )
    assert row.category == "parallel"
    assert row.repairs == ()


def test_one_observation_a_call_is_paired_in_order() -> None:
    calls = f"[{CALL}, {ROUTE}]"
    row = accepted(("human", "a"), ("function_call", calls), ("observation", "1"), ("observation", "2"), ("gpt", "b"))
    assert [(m.tool_call_id, m.content) for m in row.messages if m.role == "tool"] == [("call_0", "1"), ("call_1", "2")]


def test_calls_are_numbered_over_the_whole_conversation() -> None:
    turns = [("human", "a"), ("function_call", CALL), ("observation", "1"), ("gpt", "b")] * 2
    row = accepted(*turns)
    assert [call.id for message in row.messages for call in message.tool_calls] == ["call_0", "call_1"]
    assert row.category == "multi_turn"


def test_values_may_be_objects() -> None:
    row = accepted(("human", "a"), ("function_call", json.loads(CALL)), ("observation", {"high": "é"}), ("gpt", "b"))
    assert row.messages[2].content == '{"high": "é"}'


def test_text_right_before_a_call_joins_it() -> None:
    row = accepted(("human", "a"), ("gpt", "Let me see."), ("function_call", CALL))
    assert row.messages[1].content == "Let me see."
    assert len(row.messages[1].tool_calls) == 1
    assert row.repairs == ("assistant_turns_merged",)


def test_calls_right_after_one_another_are_parallel() -> None:
    row = accepted(
        *(("human", "a"), ("gpt", "Two."), ("function_call", CALL), ("function_call", ROUTE)),
        *(("observation", "1"), ("observation", "2"), ("gpt", "b")),
    )
    assert (row.messages[1].content, [call.name for call in row.messages[1].tool_calls]) == (
        "Two.",
        ["get_tide", "plan_route"],
    )
    assert row.repairs == ("assistant_turns_merged",)


def converted(*entries: Row) -> Conversation | Rejection:
    return convert_row("sharegpt", 1, json.dumps(changed(SHAREGPT, conversations=entries, system=None)).encode())


def test_turns_may_be_taken_out_of_the_loss() -> None:
    question = {"from": "human", "value": "a"}
    text, call = {"from": "gpt", "value": "b"}, {"from": "function_call", "value": CALL}
    row = converted(question, text | {"weight": 0}, question, call | {"weight": 1, "loss": False, "note": None})
    assert isinstance(row, Conversation)
    assert [message.weight for message in row.messages if message.role == "assistant"] == [0, 1]
    assert row.repairs == ("message_field_dropped: loss",)
    for entries in ((question, text | {"weight": 0.5}), (question, text | {"weight": 0}, call)):
        result = converted(*entries)
        assert isinstance(result, Rejection)
        assert result.reason == Reason.WRONG_SHAPE


def test_a_row_without_tools_is_a_chat() -> None:
    none: list[object] = [None, "", "[]", []]
    for tools in none:
        assert accepted(("human", "a"), ("gpt", "b"), tools=tools).category == "chat"


def test_tools_never_called_are_no_call() -> None:
    assert accepted(("human", "a"), ("gpt", "b")).category == "no_call"


@pytest.mark.parametrize(
    ("turns", "reason"),
    [
        ([], Reason.NO_TURNS),
        ([("human", "a"), ("narrator", "b")], Reason.UNKNOWN_ROLE),
        ([("human", "a"), (7, "b")], Reason.UNKNOWN_ROLE),
        ([("human", "a"), ("gpt", None)], Reason.WRONG_SHAPE),
        ([("human", "a"), ("gpt", ["b"])], Reason.WRONG_SHAPE),
        ([("human", "a"), ("gpt", " \n")], Reason.EMPTY_TURN),
        ([("human", ""), ("gpt", "b")], Reason.EMPTY_TURN),
        ([("gpt", "b")], Reason.ROLE_ORDER),
        ([("human", "a"), ("human", "a"), ("gpt", "b")], Reason.ROLE_ORDER),
        ([("human", "a"), ("gpt", "b"), ("gpt", "c")], Reason.ROLE_ORDER),
        ([("human", "a"), ("system", "s"), ("gpt", "b")], Reason.ROLE_ORDER),
        ([("human", "a"), ("function_call", CALL), ("observation", "1")], Reason.LAST_TURN_NOT_ASSISTANT),
        ([("human", "a"), ("function_call", CALL), ("gpt", "b")], Reason.CALL_WITHOUT_RESPONSE),
        ([("human", "a"), ("observation", "1"), ("gpt", "b")], Reason.RESPONSE_WITHOUT_CALL),
        (
            [("human", "a"), ("function_call", f"[{CALL}, {ROUTE}]"), ("observation", "[1]"), ("gpt", "b")],
            Reason.CALL_WITHOUT_RESPONSE,
        ),
        ([("human", "a"), ("function_call", "[]")], Reason.MALFORMED_CALL),
        ([("human", "a"), ("function_call", CALL[:-1])], Reason.MALFORMED_CALL),
        ([("human", "a"), ("function_call", '{"arguments": {}}')], Reason.MALFORMED_CALL),
        ([("human", "a"), ("function_call", '{"name": "get_tide", "arguments": "{"}')], Reason.ARGUMENTS_NOT_JSON),
        ([("human", "a"), ("function_call", '{"name": "get_tide", "arguments": 3}')], Reason.ARGUMENTS_NOT_AN_OBJECT),
        ([("human", "a"), ("gpt", "<tool_call>{}</tool_call>")], Reason.STRAY_MARKER),
    ],
)
def test_turns_with_a_defect_are_rejected_for_it(turns: list[tuple[str, Any]], reason: Reason) -> None:
    result = convert(*turns)
    assert isinstance(result, Rejection)
    assert result.reason == reason


def test_a_tuple_where_a_number_belongs_is_rejected() -> None:
    """The one schema violation that the widely used sample of such rows holds."""
    tools = json.dumps([{"name": "sum", "parameters": {"properties": {"x": {"type": "number"}}}}])
    result = convert(("human", "a"), ("function_call", '{"name": "sum", "arguments": {"x": [1, 2]}}'), tools=tools)
    assert isinstance(result, Rejection)
    assert (result.reason, result.detail) == (Reason.ARGUMENTS_VIOLATE_SCHEMA, 'sum.x: [1,2] is not of type "number"')
