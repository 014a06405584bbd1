from hypothesis import given
from hypothesis import strategies as st

from seatrial.data.conversation import Conversation, Message, Tool, ToolCall
from seatrial.data.split import split_of

NAMES = [f"tool_{number}" for number in range(40)]


@st.composite
def conversations(draw: st.DrawFn) -> Conversation:
    declared = draw(st.lists(st.sampled_from(NAMES), max_size=4, unique=True))
    called = draw(st.lists(st.sampled_from(declared), max_size=2)) if declared else []
    calls = tuple(ToolCall(name, {}, str(number)) for number, name in enumerate(called))
    messages = (Message("user", "a"), Message("assistant", "b", calls))
    return Conversation("i", "test", messages, tuple(Tool(name) for name in declared))


@given(st.lists(conversations(), max_size=30), st.integers(0, 5))
def test_no_tool_that_a_held_out_answer_rests_on_is_seen_in_training(rows: list[Conversation], seed: int) -> None:
    seen: set[str] = set()
    tested: set[str] = set()
    for row in rows:
        names = {tool.name for tool in row.tools}
        called = {call.name for message in row.messages for call in message.tool_calls}
        match split_of(row, 0.3, seed):
            case "train":
                seen |= names
            case "held_out":
                tested |= called or names
    assert seen.isdisjoint(tested)


def test_the_share_of_names_that_is_held_out() -> None:
    rows = [Conversation("i", "t", (), (Tool(f"name{number}"),)) for number in range(2000)]
    for share in (0.0, 0.1, 1.0):
        held_out = sum(split_of(row, share, 0) == "held_out" for row in rows)
        assert abs(held_out / 2000 - share) < 0.03
    assert [split_of(row, 0.5, 0) for row in rows] != [split_of(row, 0.5, 1) for row in rows]


def test_spellings_of_a_name_are_one_tool_and_chats_train() -> None:
    for number in range(50):
        spellings = [Tool(f"get_name{number}"), Tool(f"getName{number}"), Tool(f"Get Name{number}")]
        assert len({split_of(Conversation("i", "t", (), (tool,)), 0.5, 0) for tool in spellings}) == 1
    assert split_of(Conversation("i", "t", ()), 1.0, 0) == "train"
