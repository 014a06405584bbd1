import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.data.conversation import Conversation, Message, Rejection, Tool, ToolCall
from seatrial.data.reason import Reason
from seatrial.data.wellformed import accepts, category_of, well_formed

NUMBER_TOOL = Tool("f", "", {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]})
OTHER_TOOL = Tool("g", "", {"type": "object", "properties": {"x": {"type": "integer"}}})


def conversation(*messages: Message, tools: tuple[Tool, ...] = (NUMBER_TOOL, OTHER_TOOL)) -> Conversation:
    return Conversation("i", "test", messages, tools)


def asking(
    arguments: dict[str, object], name: str = "f", tools: tuple[Tool, ...] = (NUMBER_TOOL, OTHER_TOOL)
) -> Conversation:
    return conversation(
        Message("user", "a"), Message("assistant", tool_calls=(ToolCall(name, arguments, "c"),)), tools=tools
    )


def reason_of(row: Conversation) -> str:
    result = well_formed(row)
    assert isinstance(result, Rejection)
    return result.reason


def accepted(row: Conversation) -> Conversation:
    result = well_formed(row)
    assert isinstance(result, Conversation), result
    return result


def test_a_sound_conversation_gets_its_category_and_nothing_else() -> None:
    row = asking({"x": 1})
    checked = accepted(row)
    assert checked.category == "multiple"
    assert (checked.messages, checked.tools, checked.repairs) == (row.messages, row.tools, ())


def test_only_the_called_tool_is_widened_and_only_for_a_fraction() -> None:
    checked = accepted(asking({"x": 1.5}))
    assert checked.tools[0].parameters["properties"]["x"] == {"type": "number"}
    assert checked.tools[1] == OTHER_TOOL
    assert checked.repairs == ("int_widened_to_number: f.x",)
    assert accepted(asking({"x": 1.0})).repairs == ()
    assert NUMBER_TOOL.parameters["properties"]["x"] == {"type": "integer"}


def test_a_type_list_is_widened() -> None:
    tool = Tool("f", "", {"type": "object", "properties": {"x": {"type": ["integer", "null"]}}})
    checked = accepted(asking({"x": 1.5}, tools=(tool,)))
    assert checked.tools[0].parameters["properties"]["x"] == {"type": ["null", "number"]}


def test_a_type_behind_a_reference_is_widened_where_it_stands() -> None:
    parameters = {"type": "object", "properties": {"x": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}}
    tool = Tool("f", "", parameters)
    assert accepted(asking({"x": 1}, tools=(tool,))).repairs == ()
    widened = accepted(asking({"x": 1.5}, tools=(tool,))).tools[0].parameters
    assert widened == parameters | {"$defs": {"n": {"type": "number"}}}


def test_optional_nulls_go_and_required_ones_are_refused() -> None:
    checked = accepted(asking({"x": 1, "y": None}))
    assert checked.messages[1].tool_calls[0].arguments == {"x": 1}
    assert checked.repairs == ("null_argument_dropped: f.y",)
    assert reason_of(asking({"x": None})) == Reason.ARGUMENTS_VIOLATE_SCHEMA


@pytest.mark.parametrize("keyword", [{"additionalProperties": True}, {"patternProperties": {"^y": {}}}])
def test_open_schemas_take_more_arguments(keyword: dict[str, object]) -> None:
    tool = Tool("f", "", NUMBER_TOOL.parameters | keyword)
    assert accepted(asking({"x": 1, "y": 2}, tools=(tool,))).repairs == ()
    assert reason_of(asking({"x": 1, "y": 2})) == Reason.UNDECLARED_ARGUMENT


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ({"type": "object", "properties": {"x": {"type": "wat"}}}, Reason.BAD_SCHEMA),
        ({"type": "object", "properties": {"x": {"pattern": "("}}}, Reason.BAD_SCHEMA),
        ({"type": "object", "properties": {"x": {"$ref": "#/nowhere"}}}, Reason.BAD_SCHEMA),
        ({"type": "object", "properties": {"x": {"$ref": "http://127.0.0.1:9/schema"}}}, Reason.BAD_SCHEMA),
    ],
)
def test_schemas_that_mean_nothing_are_refused_called_or_not(parameters: dict[str, object], reason: Reason) -> None:
    assert reason_of(asking({"x": 1}, tools=(NUMBER_TOOL, Tool("h", "", parameters)))) == reason


def test_enum_and_bounds_are_checked() -> None:
    tool = Tool(
        "f", "", {"type": "object", "properties": {"x": {"enum": ["a"]}, "y": {"type": "integer", "maximum": 3}}}
    )
    assert accepts(tool, {"x": "a", "y": 3})
    assert not accepts(tool, {"x": "b"})
    assert not accepts(tool, {"y": 4})


def test_two_tools_of_one_name_are_refused() -> None:
    assert reason_of(asking({"x": 1}, tools=(NUMBER_TOOL, Tool("f")))) == Reason.DUPLICATE_TOOL


def test_the_last_turn_may_call_and_no_other_without_a_response() -> None:
    call = Message("assistant", tool_calls=(ToolCall("f", {"x": 1}, "c"), ToolCall("g", {}, "d")))
    user, answer = Message("user", "a"), Message("assistant", "b")
    responses = (Message("tool", "1", tool_call_id="d"), Message("tool", "", tool_call_id="c"))
    assert accepted(conversation(user, call)).category == "parallel"
    swapped = accepted(conversation(user, call, *responses, answer))
    assert [message.tool_call_id for message in swapped.messages if message.role == "tool"] == ["c", "d"]
    assert swapped.repairs == ("responses_reordered",)
    assert accepted(conversation(user, call, *reversed(responses), answer)).repairs == ()
    assert reason_of(conversation(user, call, responses[0], answer)) == Reason.CALL_WITHOUT_RESPONSE
    assert reason_of(conversation(user, call, *responses, responses[0], answer)) == Reason.RESPONSE_WITHOUT_CALL
    assert reason_of(conversation(user, call, *responses)) == Reason.LAST_TURN_NOT_ASSISTANT


def test_a_call_of_another_format_in_the_text_is_refused() -> None:
    for text in ("<tool_call>{}", "See: <functioncall> {}"):
        assert reason_of(conversation(Message("user", "a"), Message("assistant", text))) == Reason.STRAY_MARKER
    accepted(conversation(Message("user", "what is <tool_call>?"), Message("assistant", "a tag")))


def test_categories() -> None:
    call = Message("assistant", tool_calls=(ToolCall("f", {"x": 1}, "c"),))
    assert category_of([call], []) == "chat"
    assert category_of([Message("assistant", "b")], [NUMBER_TOOL]) == "no_call"
    assert category_of([call], [NUMBER_TOOL]) == "single"
    assert category_of([call], [NUMBER_TOOL, OTHER_TOOL]) == "multiple"
    assert category_of([call, call], [NUMBER_TOOL]) == "multi_turn"


ROLES = st.sampled_from(["system", "user", "assistant", "tool"])
IDS = st.sampled_from(["", "c", "d"])
CALLS = st.lists(st.builds(ToolCall, st.sampled_from(["f", "g", "h"]), st.just({"x": 1}), IDS), max_size=2).map(tuple)


@given(st.lists(st.builds(Message, ROLES, st.sampled_from(["", "a"]), CALLS, IDS), max_size=6))
def test_whatever_passes_is_sound(messages: list[Message]) -> None:
    checked = well_formed(conversation(*messages))
    if isinstance(checked, Rejection):
        return
    open_calls: set[str] = set()
    for message in checked.messages:
        if message.role == "tool":
            open_calls.remove(message.tool_call_id)
        else:
            assert not open_calls
            assert message.content or message.tool_calls
        open_calls |= {call.id for call in message.tool_calls}
        assert {call.name for call in message.tool_calls} <= {"f", "g"}
    assert checked.messages[-1].role == "assistant"
