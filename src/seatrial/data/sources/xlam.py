"""Salesforce/xlam-function-calling-60k: one question and the calls that answer it, as JSON text."""

from collections import Counter

from seatrial.data.conversation import Conversation, Tool
from seatrial.data.reason import Reason, Unfaithful
from seatrial.data.schema import normalise_tools
from seatrial.data.sources.turns import Call, Row, Turn, calls_of, converter, id_of, list_of, messages_of, text_of
from seatrial.data.wellformed import accepts


@converter
def convert(row: Row) -> Conversation:
    """``{"id", "query", "answers": JSON text, "tools": JSON text}``; ``parameters`` is a flat map of Python types."""
    answers = list_of(row, "answers")
    if not answers:
        raise Unfaithful(Reason.EMPTY_TURN, "answers hold no call, so there is nothing to learn")
    calls = calls_of(answers)
    tools, repairs = normalise_tools(row.get("tools"))
    tools, dropped = _one_per_name(tools, calls)
    messages = messages_of([Turn("user", text_of(row, "query")), Turn("assistant", "", calls)])
    return Conversation(id_of(row), "xlam", messages, tools, repairs=(*repairs, *dropped))


def _one_per_name(tools: tuple[Tool, ...], calls: tuple[Call, ...]) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """One row in twenty declares several vendors' APIs under one name: keep the one that the calls fit best."""
    counts = Counter(tool.name for tool in tools)
    if len(counts) == len(tools):
        return tools, ()
    best: dict[str, Tool] = {}
    for tool in tools:
        if tool.name not in best or _fit(tool, calls) > _fit(best[tool.name], calls):
            best[tool.name] = tool
    kept = tuple(tool for tool in tools if best[tool.name] is tool)
    return kept, tuple(f"duplicate_tool_dropped: {name}" for name, count in counts.items() if count > 1)


def _fit(tool: Tool, calls: tuple[Call, ...]) -> tuple[int, int]:
    """How many of the calls of this name validate, and how many pass only arguments that the tool declares."""
    own = [call for call in calls if call.name == tool.name]
    declared = tool.parameters["properties"].keys()
    return sum(accepts(tool, call.arguments) for call in own), sum(call.arguments.keys() <= declared for call in own)
