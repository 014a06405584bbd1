import json

import pytest

from seatrial.data.conversation import Conversation, Message, Rejection, ToolCall
from seatrial.data.convert import convert_row
from seatrial.data.reason import Reason
from tests.data.rows import GLAIVE, SHAREGPT, TIDE_TOOL, Row, changed

CALL = 'ASSISTANT: <functioncall> {"name": "get_tide", "arguments": \'{"harbour": "Cork"}\'} <|endoftext|>'
ANSWERED = '\n\n\nFUNCTION RESPONSE: {"high": 3}\n\n\nASSISTANT: At 3. <|endoftext|>'


def convert(row: Row) -> Conversation | Rejection:
    return convert_row("glaive", 1, json.dumps(row).encode())


def accepted(row: Row) -> Conversation:
    result = convert(row)
    assert isinstance(result, Conversation), result
    return result


def test_a_row_becomes_turns_with_paired_calls() -> None:
    row = accepted(GLAIVE)
    arguments = {"harbour": "King's Quay", "metres": True}
    assert row.messages == (
        Message("user", "When is high tide at King's Quay?"),
        Message("assistant", tool_calls=(ToolCall("get_tide", arguments, "call_0"),)),
        Message("tool", '{"high": "14:05"}', tool_call_id="call_0", name="get_tide"),
        Message("assistant", "High tide is at 14:05."),
        Message("user", "Thanks!"),
        Message("assistant", "You're welcome."),
    )
    assert [tool.name for tool in row.tools] == ["get_tide", "plan_route"]
    assert row.tools[0].parameters == TIDE_TOOL["parameters"]
    assert row.repairs == ()
    assert row.category == "multiple"


def test_a_row_without_functions_is_a_chat() -> None:
    system = "SYSTEM: You are a helpful assistant, with no access to external functions."
    row = accepted({"system": system, "chat": "USER: Hi\n\n\nASSISTANT: Hello! <|endoftext|>"})
    assert row.category == "chat"
    assert [message.role for message in row.messages] == ["user", "assistant"]


def test_a_prompt_of_its_own_stays_and_the_envelope_goes() -> None:
    row = changed(GLAIVE, system="SYSTEM: You are the harbour master. " + json.dumps(TIDE_TOOL))
    assert accepted(row).messages[0] == Message("system", "You are the harbour master.")
    assert accepted(GLAIVE).messages[0].role == "user"


@pytest.mark.parametrize(
    "call",
    [
        '{"name": "get_tide", "arguments": {"harbour": "Cork"}}',
        '{"name": "get_tide", "arguments": "{\\"harbour\\": \\"Cork\\"}"}',
        '{ "name":"get_tide","arguments":\'{"harbour":"Cork"}\' }',
        '{"name": "get_tide", "arguments": \'{\n  "harbour": "Cork"\n}\'}',
    ],
)
def test_arguments_may_be_quoted_text_or_an_object(call: str) -> None:
    row = accepted(changed(GLAIVE, chat=f"USER: Cork?\n\n\nASSISTANT: <functioncall> {call} <|endoftext|>"))
    assert row.messages[-1].tool_calls == (ToolCall("get_tide", {"harbour": "Cork"}, "call_0"),)


def test_an_apostrophe_escaped_for_python_is_an_apostrophe() -> None:
    chat = "USER: Cork?\n\n\n" + CALL.replace("Cork", "King\\'s Quay")
    row = accepted(changed(GLAIVE, chat=chat))
    assert row.messages[-1].tool_calls[0].arguments == {"harbour": "King's Quay"}
    assert row.repairs == ("escaped_apostrophe",)


def test_text_before_a_call_is_its_content() -> None:
    row = accepted(changed(GLAIVE, chat="USER: Cork?\n\n\n" + CALL.replace("<func", "I'll look.\n<func") + ANSWERED))
    assert row.messages[1].content == "I'll look."
    assert row.messages[1].tool_calls[0].arguments == {"harbour": "Cork"}


def test_a_header_after_a_single_newline_is_text() -> None:
    chat = "USER: Write a play\n\n\nASSISTANT: Ann:\nUSER: is a word\nASSISTANT: too <|endoftext|>"
    assert accepted(changed(GLAIVE, chat=chat)).messages[1].content == "Ann:\nUSER: is a word\nASSISTANT: too"


@pytest.mark.parametrize(
    ("chat", "reason"),
    [
        ("", Reason.NO_TURNS),
        ("Hello", Reason.WRONG_SHAPE),
        ("USER: a", Reason.LAST_TURN_NOT_ASSISTANT),
        ("ASSISTANT: a <|endoftext|>", Reason.ROLE_ORDER),
        ("USER: a\n\n\nASSISTANT: b", Reason.UNTERMINATED_TURN),
        ("USER: a\n\n\nASSISTANT: b <|endoftext|> c <|endoftext|>", Reason.STRAY_MARKER),
        ("USER: a <|endoftext|>\n\n\nASSISTANT: b <|endoftext|>", Reason.STRAY_MARKER),
        ("USER: a\n\n\nASSISTANT: <|endoftext|>", Reason.EMPTY_TURN),
        (
            f"USER: a\n\n\n{CALL}\n\n\nFUNCTION RESPONSE: 1 <|endoftext|>\n\n\nASSISTANT: b <|endoftext|>",
            Reason.STRAY_MARKER,
        ),
        (f"USER: a\n\n\n{CALL}\n\n\nUSER: b\n\n\nASSISTANT: c <|endoftext|>", Reason.CALL_WITHOUT_RESPONSE),
        ("USER: a\n\n\nASSISTANT: b <|endoftext|>" + ANSWERED, Reason.RESPONSE_WITHOUT_CALL),
        ("USER: a\n\n\n" + CALL + ANSWERED + ANSWERED, Reason.RESPONSE_WITHOUT_CALL),
        ("USER: a\n\n\n" + CALL.replace("} <|", "} So? <|"), Reason.TEXT_AFTER_CALL),
        ("USER: a\n\n\n" + CALL.replace("\"}'}", '"}'), Reason.MALFORMED_CALL),
        ("USER: a\n\n\n" + CALL.replace('"Cork"', "Cork"), Reason.ARGUMENTS_NOT_JSON),
        ("USER: a\n\n\n" + CALL.replace('"Cork"', "King\\'s"), Reason.ARGUMENTS_NOT_JSON),
        (
            "USER: a\n\n\n" + CALL.replace(" <|end", CALL.removeprefix("ASSISTANT:").partition(" <|end")[0] + " <|end"),
            Reason.MALFORMED_CALL,
        ),
        ("USER: a\n\n\n" + CALL.replace('{"harbour": "Cork"}', "[1]"), Reason.ARGUMENTS_NOT_AN_OBJECT),
        ("USER: a\n\n\n" + CALL.replace("get_tide", "get_time"), Reason.UNDECLARED_TOOL),
        ("USER: a\n\n\n" + CALL.replace("harbour", "port"), Reason.UNDECLARED_ARGUMENT),
        ("USER: a\n\n\n" + CALL.replace('"Cork"', "7"), Reason.ARGUMENTS_VIOLATE_SCHEMA),
        ("USER: a\n\n\n" + CALL.replace('{"harbour": "Cork"}', "{}"), Reason.ARGUMENTS_VIOLATE_SCHEMA),
        ("USER: a\n\n\n" + CALL.replace(', "arguments": \'{"harbour": "Cork"}\'', ""), Reason.MALFORMED_CALL),
    ],
)
def test_chats_with_a_defect_are_rejected_for_it(chat: str, reason: Reason) -> None:
    result = convert(changed(GLAIVE, chat=chat))
    assert isinstance(result, Rejection)
    assert result.reason == reason


@pytest.mark.parametrize(
    ("system", "reason"),
    [
        ('SYSTEM: Use -\n{"name": "f"', Reason.BAD_TOOLS),
        ("SYSTEM: Use -\n{'name': 'f'}", Reason.BAD_TOOLS),
        ('SYSTEM: Use -\n{"name": "f"} and {"name": "g"}', Reason.BAD_TOOLS),
        (
            'SYSTEM: Use -\n{"name": "f", "parameters": {"type": "object", "properties": {"a": {"minimum": NaN}}}}',
            Reason.BAD_TOOLS,
        ),
        ('SYSTEM: Use -\n{"description": "nameless"}', Reason.BAD_TOOLS),
        ('SYSTEM: Use -\n{"name": "f", "parameters": {"type": "string"}}', Reason.BAD_SCHEMA),
        ('SYSTEM: Use -\n{"name": "f"}\n\n{"name": "f", "description": "another"}', Reason.DUPLICATE_TOOL),
        (None, Reason.WRONG_SHAPE),
    ],
)
def test_functions_with_a_defect_are_rejected_for_it(system: str | None, reason: Reason) -> None:
    result = convert({"system": system, "chat": "USER: a\n\n\nASSISTANT: b <|endoftext|>"})
    assert isinstance(result, Rejection)
    assert result.reason == reason


def test_the_same_declaration_twice_counts_once() -> None:
    row = accepted(changed(GLAIVE, system=GLAIVE["system"] + json.dumps(TIDE_TOOL)))
    assert [tool.name for tool in row.tools] == ["get_tide", "plan_route"]
    assert row.repairs == ("identical_tool_dropped: get_tide",)


def test_the_same_rows_in_sharegpt_form_are_told_by_their_keys() -> None:
    row = accepted(SHAREGPT)
    assert row.source == "glaive"
    assert [len(message.tool_calls) for message in row.messages] == [0, 0, 2, 0, 0, 0]
