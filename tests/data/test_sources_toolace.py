import json

import pytest

from seatrial.data.conversation import Conversation, Message, Rejection, ToolCall
from seatrial.data.convert import convert_row
from seatrial.data.reason import Reason
from tests.data.rows import TOOLACE, Row, changed


def convert(row: Row) -> Conversation | Rejection:
    return convert_row("toolace", 1, json.dumps(row).encode())


def with_answer(answer: str) -> Row:
    turns = [{"from": "user", "value": "a"}, {"from": "assistant", "value": answer}]
    return changed(TOOLACE, conversations=turns)


def accepted(row: Row) -> Conversation:
    result = convert(row)
    assert isinstance(result, Conversation), result
    return result


def test_calls_are_read_by_the_longest_declared_name() -> None:
    row = accepted(TOOLACE)
    arguments = {"harbour": "St. John's, (north)", "levels": [1, "two", {"a": [True, None]}], "opts": {"x": None}}
    assert row.messages[2].tool_calls == (
        ToolCall("Tide Tables / v2.1 (EU)", arguments, "call_0"),
        ToolCall("newAddress", {"n": -1.5}, "call_1"),
        ToolCall("Tide Tables", {}, "call_2"),
    )
    assert [(m.name, m.content) for m in row.messages if m.role == "tool"] == [
        ("Tide Tables / v2.1 (EU)", '{"a": 1}'),
        ("newAddress", '{"b": 2}'),
        ("Tide Tables", '{"c": 3}'),
    ]


def test_the_envelope_goes_and_what_else_the_prompt_says_stays() -> None:
    assert accepted(TOOLACE).messages[0] == Message("system", "Today is 2025-02-14, Friday.")


def test_prompts_of_the_family_that_say_it_otherwise() -> None:
    system = (
        "You are an expert in composing functions. You are given a question and a set of possible functions. "
        "If none of the functions can be used, point it out. If the given question lacks the parameters required by "
        "the function,also point it out. You should only return the function call in tools call sections.\n"
        "If you decide to invoke any of the function(s), you MUST put it in the format of [func_name1("
        "params_name1=params_value1, params_name2=params_value2...), func_name2(params)]\nYou SHOULD NOT include any "
        "other text in the response.\nHere is a list of functions in JSON format that you can invoke.\n\n[\n  "
        '{"name": "now"}\n]\n'
    )
    turns = [{"from": "user", "value": "a"}, {"from": "assistant", "value": "[now()]"}]
    row = accepted({"system": system, "conversations": turns})
    assert [message.role for message in row.messages] == ["user", "assistant"]
    assert row.messages[1].tool_calls[0].name == "now"


def test_types_are_normalised() -> None:
    assert accepted(TOOLACE).tools[0].parameters == {
        "type": "object",
        "properties": {"harbour": {"type": "string"}, "levels": {"type": "array"}, "opts": {"type": "object"}},
        "required": ["harbour"],
    }


def test_text_may_stand_alone_or_before_a_call() -> None:
    assert accepted(with_answer("Which [harbour] (of two)?")).messages[-1] == Message(
        "assistant", "Which [harbour] (of two)?"
    )
    last = accepted(with_answer("Sure: [newAddress ( n = 2 )]")).messages[-1]
    assert (last.content, last.tool_calls[0].arguments) == ("Sure:", {"n": 2})
    assert accepted(with_answer("Tide Tables() is old, see [a](http://b/c(d)?e=f).")).messages[-1].tool_calls == ()


def test_a_last_comma_may_stand() -> None:
    last = accepted(with_answer("[newAddress(n=2, ), Tide Tables() , ]")).messages[-1]
    assert [(call.name, call.arguments) for call in last.tool_calls] == [("newAddress", {"n": 2}), ("Tide Tables", {})]


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ('"a, b) = [c"', "a, b) = [c"),
        ("'it''s'", "its"),
        ("'it\\'s'", "it's"),
        ('"say \\"hi\\""', 'say "hi"'),
        ('"\\u00e9\\n"', "é\n"),
        ("'C:\\dir'", "C:\\dir"),
        ('"a=b"', "a=b"),
    ],
)
def test_texts_may_hold_what_separates_arguments(value: str, read: str) -> None:
    last = accepted(with_answer(f"[Tide Tables / v2.1 (EU)(harbour={value}, levels=[])]")).messages[-1]
    assert last.tool_calls[0].arguments == {"harbour": read, "levels": []}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ('[Nosuch Tool(a="b")]', Reason.UNDECLARED_TOOL),
        ("[Tide Tables(), Nosuch()]", Reason.UNDECLARED_TOOL),
        ('Sure: [Nosuch Tool(a="b")]', Reason.UNDECLARED_TOOL),
        ("newAddress(n=1)", Reason.MALFORMED_CALL),
        ("[newAddress(n=1,,)]", Reason.MALFORMED_CALL),
        ("[newAddress(,)]", Reason.MALFORMED_CALL),
        ("[newAddress(n=1)", Reason.MALFORMED_CALL),
        ("[newAddress(n=1", Reason.MALFORMED_CALL),
        ("[newAddress(n='1]", Reason.MALFORMED_CALL),
        ("[newAddress(1)]", Reason.MALFORMED_CALL),
        ("[newAddress(n=1, n=2)]", Reason.MALFORMED_CALL),
        ("[newAddress(n=1) newAddress(n=2)]", Reason.MALFORMED_CALL),
        ("[newAddress(n=one)]", Reason.ARGUMENTS_NOT_JSON),
        ("[newAddress(n=1)] Done.", Reason.TEXT_AFTER_CALL),
        ("[newAddress(m=1)]", Reason.UNDECLARED_ARGUMENT),
        ("[newAddress(n='1')]", Reason.ARGUMENTS_VIOLATE_SCHEMA),
    ],
)
def test_calls_with_a_defect_are_rejected_for_it(answer: str, reason: Reason) -> None:
    result = convert(with_answer(answer))
    assert isinstance(result, Rejection)
    assert result.reason == reason


def test_a_conversion_that_lost_the_tools_is_caught() -> None:
    """A public conversion of this dataset cut names at the first space and kept no tools."""
    turns = [{"from": "user", "value": "a"}, {"from": "assistant", "value": '[API(trend="x")]'}]
    result = convert({"system": "You are helpful.", "conversations": turns})
    assert isinstance(result, Rejection)
    assert result.reason == Reason.UNDECLARED_TOOL


def test_unreadable_declarations_are_rejected() -> None:
    result = convert(changed(TOOLACE, system=TOOLACE["system"].replace('"harbour"', "harbour", 1)))
    assert isinstance(result, Rejection)
    assert result.reason == Reason.BAD_TOOLS
