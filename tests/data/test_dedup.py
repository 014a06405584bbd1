import msgspec

from seatrial.data.conversation import Conversation, Message, Tool, ToolCall
from seatrial.data.dedup import Dedup, Seen, fingerprint
from seatrial.data.reason import Reason

QUESTION = "When is high tide at the harbour of Brest on the third of May in the early morning hours of the day"


def conversation(question: str = QUESTION, id: str = "a", tools: str = "f", **arguments: object) -> Conversation:
    calls = (ToolCall("f", dict(arguments), f"call_{id}"),)
    declared = tuple(Tool(name) for name in tools)
    return Conversation(id, "test", (Message("user", question), Message("assistant", tool_calls=calls)), declared)


def judge(dedup: Dedup, *rows: Conversation) -> list[Reason | None]:
    seen = Seen(dedup)
    return [seen.add(fingerprint(row, dedup)) for row in rows]


def test_ids_and_orders_do_not_make_a_row_different() -> None:
    rows = [conversation(id="a", tools="fg", x=1, y=2), conversation(id="b", tools="gf", y=2, x=1)]
    assert judge(Dedup.EXACT, *rows) == [None, Reason.DUPLICATE]
    assert judge(Dedup.NONE, *rows) == [None, None]


def test_what_is_said_called_or_declared_does() -> None:
    described = msgspec.structs.replace(conversation(), tools=(Tool("f", "described"),))
    rows = [conversation(), conversation("other"), conversation(x=1), conversation(tools="g"), described]
    assert judge(Dedup.EXACT, *rows) == [None] * 5


def test_nearly_the_same_question_is_a_near_duplicate_for_the_same_tools_only() -> None:
    near = conversation(QUESTION + " please", x=2)
    other_tools = conversation(QUESTION + " please", tools="fg", x=2)
    assert judge(Dedup.NEAR, conversation(), near) == [None, Reason.NEAR_DUPLICATE]
    assert judge(Dedup.NEAR, conversation(), other_tools) == [None, None]
    assert judge(Dedup.EXACT, conversation(), near) == [None, None]
    assert judge(Dedup.NEAR, conversation(), conversation(id="b")) == [None, Reason.DUPLICATE]
