import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.data.augment import (
    Augmentation,
    ToolPool,
    augmented,
    mask_names,
    pool_of,
    with_distractors,
    without_argument,
    without_called_tools,
)
from seatrial.data.conversation import Conversation, Message, Tool, ToolCall
from seatrial.data.wellformed import accepts, well_formed


def tool(name: str, *parameters: str) -> Tool:
    properties = {parameter: {"type": "string", "description": f"the {parameter}"} for parameter in parameters}
    schema = {"type": "object", "properties": properties, "required": list(parameters)}
    return Tool(name, f"{name.replace('_', ' ')} for sailors", schema)


TIDE, ROUTE, PRICE = tool("get_tide", "harbour"), tool("plan_route", "start", "end"), tool("fish_price", "kind")
POOL = ToolPool(
    [tool(f"{verb}_{noun}", "x") for verb in ("find", "tide", "book") for noun in ("boat", "crew", "level")]
)


def conversation(*tools: Tool, question: str = "When is high tide at Brest?", **arguments: str) -> Conversation:
    given_arguments = arguments or {"harbour": "Brest"}
    messages = (
        Message("system", "Be brief."),
        Message("user", question),
        Message("assistant", "Let me look.", (ToolCall(tools[0].name, given_arguments, "c"),)),
        Message("tool", "9:10", tool_call_id="c", name=tools[0].name),
        Message("assistant", "At 9:10."),
    )
    made = well_formed(Conversation("row", "test", messages, tools))
    assert isinstance(made, Conversation)
    return made


def rng() -> random.Random:
    return random.Random(0)


def test_masking_renames_declarations_and_calls_alike() -> None:
    row = conversation(TIDE, PRICE)
    masked = mask_names(row, rng())
    assert masked is not None
    names = [declared.name for declared in masked.tools]
    assert {"get_tide", "fish_price"}.isdisjoint(names)
    call = masked.messages[2].tool_calls[0]
    assert call.name == names[0] == masked.messages[3].name
    assert accepts(masked.tools[0], call.arguments)
    assert list(call.arguments.values()) == ["Brest"]
    assert masked.tools[0].parameters["required"] == list(call.arguments)
    assert [declared.description for declared in masked.tools] == [TIDE.description, PRICE.description]
    assert masked.messages[1] == row.messages[1]
    assert isinstance(well_formed(masked), Conversation)


@pytest.mark.parametrize(
    "row",
    [
        conversation(TIDE, question="What does get_tide say of Brest?"),
        conversation(tool("f", "port_name"), question="port_name?", port_name="Brest"),
        conversation(
            Tool("f", "", {"type": "object", "properties": {"x": {"$ref": "#/$defs/n"}}, "$defs": {"n": {}}}), x="a"
        ),
        Conversation("i", "test", (Message("user", "a"), Message("assistant", "b"))),
    ],
)
def test_masking_does_not_apply_where_it_would_show_or_break(row: Conversation) -> None:
    assert mask_names(row, rng()) is None


def test_without_the_called_tools_the_answer_is_a_refusal() -> None:
    negative = without_called_tools(conversation(TIDE, tool("tide_level", "x"), PRICE), POOL, rng())
    assert negative is not None
    assert [declared.name for declared in negative.tools] == ["fish_price"]  # tide_level might have done
    assert [message.role for message in negative.messages] == ["system", "user", "assistant"]
    assert not negative.messages[-1].tool_calls
    assert (negative.category, negative.id) == ("irrelevant", "row-irrelevant")


def test_with_no_tool_left_others_are_drawn_that_cannot_do_it_either() -> None:
    for seed in range(20):
        negative = without_called_tools(conversation(TIDE), POOL, random.Random(seed))
        assert negative is not None
        assert len(negative.tools) == 1
        assert "tide" not in negative.tools[0].name
    assert without_called_tools(conversation(TIDE), ToolPool(()), rng()) is None


def test_a_missing_argument_is_asked_for() -> None:
    negative = without_argument(conversation(TIDE), rng())
    assert negative is not None
    assert negative.messages[1].content == "When is high tide at some harbour?"
    assert "harbour" in negative.messages[2].content
    assert (negative.category, negative.tools) == ("missing_argument", (TIDE,))


def test_what_stands_for_a_value_takes_its_article_too() -> None:
    negative = without_argument(conversation(TIDE, question="Tide at the Brest?"), rng())
    assert negative is not None
    assert negative.messages[1].content == "Tide at some harbour?"


@pytest.mark.parametrize("question", ["Tide at Brest or Brest?", "Tide at brest?", "Tide at Brestois?", "Tide?"])
def test_an_argument_that_is_not_spelt_out_once_is_not_taken_away(question: str) -> None:
    assert without_argument(conversation(TIDE, question=question), rng()) is None


def test_distractors_are_added_in_any_place_half_of_them_alike() -> None:
    row = conversation(TIDE, PRICE)
    orders = set()
    for seed in range(20):
        more = with_distractors(row, POOL, 4, random.Random(seed))
        assert more is not None
        names = [declared.name for declared in more.tools]
        assert len(set(names)) == len(names) == 6
        assert sum("tide" in name for name in names) >= 3
        assert {"get_tide", "fish_price"} <= set(names)
        assert more.messages == row.messages
        orders.add(names.index("get_tide"))
    assert len(orders) > 2


def test_distractors_do_not_answer_what_had_no_answer() -> None:
    no_call = Conversation("i", "test", (Message("user", "a"), Message("assistant", "b")), (TIDE,))
    assert with_distractors(no_call, POOL, 4, rng()) is None
    assert with_distractors(conversation(TIDE), ToolPool([tool("getTide", "x")]), 4, rng()) is None


def test_a_pool_holds_each_name_once() -> None:
    rows = [conversation(TIDE, PRICE), conversation(TIDE, ROUTE)]
    assert [declared.name for declared in pool_of(rows).tools] == ["get_tide", "fish_price", "plan_route"]


TEXTS = st.sampled_from(["Brest", "Cork", "3", "", "get_tide", "some Brest", "Brest Brest"])


@given(
    st.builds(
        lambda question, value, tools: conversation(TIDE, *tools, question=f"a {question}", harbour=value),
        TEXTS,
        TEXTS,
        st.lists(st.sampled_from([ROUTE, PRICE]), unique_by=lambda declared: declared.name),
    ),
    st.integers(0, 100),
    st.builds(Augmentation, st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.5, 1.0]), st.integers(0, 4)),
)
@settings(max_examples=150)
def test_whatever_is_made_is_sound_and_made_again(row: Conversation, seed: int, plan: Augmentation) -> None:
    made = list(augmented(row, POOL, plan, seed))
    assert made == list(augmented(row, POOL, plan, seed))
    assert 1 <= len(made) <= 2
    for each in made:
        assert well_formed(each) == each
    assert made[0].id == row.id
    if plan == Augmentation():
        assert made == [row]


@pytest.mark.parametrize(
    "make",
    [
        lambda row: mask_names(row, rng()),
        lambda row: without_called_tools(row, POOL, rng()),
        lambda row: without_argument(row, rng()),
        lambda row: with_distractors(row, POOL, 2, rng()),
    ],
)
def test_nothing_is_changed_in_place(make: Callable[[Conversation], Conversation | None]) -> None:
    row, untouched = conversation(TIDE, PRICE), conversation(TIDE, PRICE)
    assert make(row) is not None
    assert row == untouched
