import json

import pytest

from seatrial.data.conversation import Conversation, Message, Rejection, ToolCall
from seatrial.data.convert import convert_row
from seatrial.data.reason import Reason
from tests.data.rows import HERMES, ROUTE_TOOL, TIDE_TOOL, Row, changed

CORK = '{"name": "get_tide", "arguments": {"harbour": "Cork"}}'


def convert(row: Row) -> Conversation | Rejection:
    return convert_row("hermes", 1, json.dumps(row).encode())


def accepted(row: Row) -> Conversation:
    result = convert(row)
    assert isinstance(result, Conversation), result
    return result


def with_answer(answer: str, *more: tuple[str, str], tools: object = None) -> Row:
    turns = [("human", "a"), ("gpt", answer), *more]
    declared = json.dumps([TIDE_TOOL, ROUTE_TOOL] if tools is None else tools)
    return {"conversations": [{"from": who, "value": value} for who, value in turns], "tools": declared}


def test_a_row_becomes_paired_parallel_calls_without_its_envelope() -> None:
    row = accepted(HERMES)
    assert row.messages == (
        Message("user", "Tides at Brest and Cork?"),
        Message(
            "assistant",
            "Let me look.",
            (
                ToolCall("get_tide", {"harbour": "Brest"}, "call_0"),
                ToolCall("get_tide", {"harbour": "Cork", "metres": True}, "call_1"),
            ),
        ),
        Message("tool", '{"high": "09:10"}', tool_call_id="call_0", name="get_tide"),
        Message("tool", '{"high": "11:40"}', tool_call_id="call_1", name="get_tide"),
        Message("assistant", "Brest 09:10, Cork 11:40."),
    )
    assert [tool.name for tool in row.tools] == ["get_tide"]
    assert row.repairs == ("python_literal_call",)


@pytest.mark.parametrize(
    "body",
    [
        json.dumps([{"type": "function", "function": TIDE_TOOL}]),
        repr([{"type": "function", "function": TIDE_TOOL}]),
        json.dumps(TIDE_TOOL) + "\n" + json.dumps(ROUTE_TOOL),
        json.dumps(TIDE_TOOL),
    ],
)
def test_tools_are_found_in_the_prompt_behind_decoys(body: str) -> None:
    prompt = f"You are a function calling AI model. Look within <tools></tools> tags: <tools> <tools>\n{body}\n</tools>"
    turns = [{"from": "system", "value": prompt}, *with_answer("b")["conversations"]]
    row = accepted({"conversations": turns})
    assert row.tools[0].name == "get_tide"
    assert row.messages[0].role == "user"


def test_the_tools_field_wins_over_the_prompt() -> None:
    row = accepted(changed(HERMES, tools=json.dumps([TIDE_TOOL, ROUTE_TOOL])))
    assert [tool.name for tool in row.tools] == ["get_tide", "plan_route"]


def test_an_unknown_prompt_that_declares_tools_is_dropped_aloud() -> None:
    row = changed(HERMES)
    row["conversations"][0]["value"] = "Be brief. " + row["conversations"][0]["value"]
    assert "system_prompt_dropped" in accepted(row).repairs


def test_json_mode_rows_are_chats_with_their_prompt() -> None:
    turns = [
        {"from": "system", "value": "Answer in JSON. <schema>{'type': 'object'}</schema>"},
        {"from": "human", "value": "a"},
        {"from": "gpt", "value": '{"a": 1}'},
    ]
    row = accepted({"id": "j", "conversations": turns, "schema": '{"type": "object"}'})
    assert row.category == "chat"
    assert [message.role for message in row.messages] == ["system", "user", "assistant"]


def test_escaped_newlines_and_a_name_inside_the_arguments_are_mended_aloud() -> None:
    row = accepted(
        with_answer('<tool_call>\\n{"arguments": {\'harbour\': \'Cork\', "name": "get_tide"}}\\n</tool_call>\\n')
    )
    assert row.messages[1].tool_calls == (ToolCall("get_tide", {"harbour": "Cork"}, "call_0"),)
    assert row.repairs == ("escaped_newline_dropped", "python_literal_call", "name_moved_outward")


def test_the_only_argument_of_a_one_parameter_tool_gets_the_declared_name_if_it_fits() -> None:
    tool = {"name": "extract", "parameters": {"type": "object", "properties": {"items": {"type": "array"}}}}
    call = '<tool_call>{{"name": "extract", "arguments": {{"queries": {}}}}}</tool_call>'
    row = accepted(with_answer(call.format("[1]"), tools=[tool]))
    assert row.messages[1].tool_calls[0].arguments == {"items": [1]}
    assert row.repairs == ("argument_renamed: extract.queries to items",)
    result = convert(with_answer(call.format("1"), tools=[tool]))
    assert isinstance(result, Rejection)
    assert result.reason == Reason.UNDECLARED_ARGUMENT


def test_a_response_without_tags_or_name_stays_as_it_is_written() -> None:
    call = f"<tool_call>{CORK}</tool_call>"
    for response in ('{"high":  3}', '<tool_response>\n{"high":  3}\n</tool_response>'):
        row = accepted(with_answer(call, ("tool", response), ("gpt", "At 3.")))
        assert row.messages[2].content == '{"high":  3}'
    row = accepted(with_answer(call, ("tool", "<tool_response>{'high': None}</tool_response>"), ("gpt", "?")))
    assert row.messages[2].content == '{"high": null}'
    assert row.repairs == ("python_literal_response",)


def test_responses_are_paired_by_name() -> None:
    route = '{"name": "plan_route", "arguments": {"start": "a", "end": "b"}}'
    responses = "".join(
        f"<tool_response>{json.dumps({'tool_call_id': 'x', 'name': name, 'content': name})}</tool_response>"
        for name in ("plan_route", "get_tide")
    )
    calls = f"<tool_call>{CORK}</tool_call><tool_call>{route}</tool_call>"
    row = accepted(with_answer(calls, ("tool", responses), ("gpt", "b")))
    assert [(m.tool_call_id, m.content) for m in row.messages if m.role == "tool"] == [
        ("call_0", "get_tide"),
        ("call_1", "plan_route"),
    ]
    assert row.repairs == ("responses_reordered",)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (f"<tool_call>{CORK}", Reason.MALFORMED_CALL),
        (f"{CORK}</tool_call>", Reason.MALFORMED_CALL),
        (f"<tool_call><tool_call>{CORK}</tool_call></tool_call>", Reason.MALFORMED_CALL),
        (f"<tool_call>{CORK}</tool_call> That is it.", Reason.TEXT_AFTER_CALL),
        (f"<tool_call>{CORK}</tool_call>or<tool_call>{CORK}</tool_call>", Reason.TEXT_AFTER_CALL),
        ("<tool_call>get_tide('Cork')</tool_call>", Reason.MALFORMED_CALL),
        ("<tool_call></tool_call>", Reason.MALFORMED_CALL),
        ('<tool_call>{"name": "get_tide", "arguments": null}</tool_call>', Reason.ARGUMENTS_NOT_AN_OBJECT),
        (f"<tool_call>{CORK.replace('get_tide', 'nosuch')}</tool_call>", Reason.UNDECLARED_TOOL),
        ("", Reason.EMPTY_TURN),
    ],
)
def test_answers_with_a_defect_are_rejected_for_it(answer: str, reason: Reason) -> None:
    result = convert(with_answer(answer))
    assert isinstance(result, Rejection)
    assert result.reason == reason


@pytest.mark.parametrize(
    ("response", "reason"),
    [
        ("<tool_response>1", Reason.MALFORMED_RESPONSE),
        ("See: <tool_response>1</tool_response>", Reason.MALFORMED_RESPONSE),
        ("<tool_response>1</tool_response><tool_response>2</tool_response>", Reason.RESPONSE_WITHOUT_CALL),
        ('<tool_response>{"name": "plan_route", "content": 1}</tool_response>', Reason.RESPONSE_WITHOUT_CALL),
    ],
)
def test_responses_with_a_defect_are_rejected_for_it(response: str, reason: Reason) -> None:
    result = convert(with_answer(f"<tool_call>{CORK}</tool_call>", ("tool", response), ("gpt", "b")))
    assert isinstance(result, Rejection)
    assert result.reason == reason


def test_unreadable_tools_in_the_prompt_are_rejected() -> None:
    turns = [{"from": "system", "value": "<tools>get_tide(harbour)</tools>"}, *with_answer("b")["conversations"]]
    result = convert({"conversations": turns})
    assert isinstance(result, Rejection)
    assert result.reason == Reason.BAD_TOOLS
