"""ShareGPT turns with ``function_call`` and ``observation``, as LLaMA-Factory and APIGen-MT write them."""

from seatrial.data.conversation import Conversation, Role
from seatrial.data.notation import read_json
from seatrial.data.reason import Reason, Unfaithful, excerpt
from seatrial.data.schema import normalise_tools
from seatrial.data.sources.turns import Call, Json, Row, Turn, call_of, converter, id_of, messages_of

ROLES: dict[str, Role] = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "observation": "tool",
    "tool": "tool",
}


@converter
def convert(row: Row) -> Conversation:
    """``{"conversations": [{"from", "value"}...], "tools": JSON text, "system"?}``."""
    return read(row, "sharegpt")


def read(row: Row, source: str) -> Conversation:
    """Like :func:`convert`, for a named source; raises Unfaithful."""
    tools, tool_repairs = normalise_tools(row.get("tools"))
    entries = row.get("conversations")
    if not isinstance(entries, list):
        raise Unfaithful(Reason.WRONG_SHAPE, f"conversations is {type(entries).__name__}, not a list")
    turns: list[Turn] = []
    repairs = list(tool_repairs)
    system = row.get("system")
    if isinstance(system, str) and system.strip():
        turns.append(Turn("system", system))
    elif system is not None and not isinstance(system, str):
        raise Unfaithful(Reason.WRONG_SHAPE, f"system is {type(system).__name__}, not text")
    for number, entry in enumerate(entries):
        read_turns = _turns(entry, number, turns)
        if (
            len(read_turns) == 1
            and read_turns[0].calls
            and turns
            and turns[-1].role == "assistant"
            and not turns[-1].calls
        ):
            repairs.append("assistant_turns_merged")
            read_turns = [Turn("assistant", turns.pop().content, read_turns[0].calls)]
        turns += read_turns
    return Conversation(id_of(row), source, messages_of(turns), tools, repairs=tuple(repairs))


def _turns(entry: Json, number: int, before: list[Turn]) -> list[Turn]:
    if not isinstance(entry, dict):
        raise Unfaithful(Reason.WRONG_SHAPE, f"turn {number} is {type(entry).__name__}, not an object")
    speaker, value = entry.get("from"), entry.get("value")
    if speaker == "function_call":
        return [Turn("assistant", "", _calls(value))]
    role = ROLES.get(speaker) if isinstance(speaker, str) else None
    if role is None:
        raise Unfaithful(Reason.UNKNOWN_ROLE, f"turn {number} is from {excerpt(speaker)}")
    if not isinstance(value, str):
        raise Unfaithful(Reason.WRONG_SHAPE, f"turn {number}: value is {type(value).__name__}, not text")
    if role == "tool":
        return [Turn("tool", response) for response in _responses(value, before)]
    return [Turn(role, value)]


def _calls(value: Json) -> tuple[Call, ...]:
    """One call, or a list of parallel ones, as JSON text or as the value itself."""
    if isinstance(value, str):
        try:
            value = read_json(value)
        except ValueError as error:
            raise Unfaithful(Reason.MALFORMED_CALL, f"{error}: {excerpt(value)}") from error
    calls = value if isinstance(value, list) else [value]
    if not calls:
        raise Unfaithful(Reason.MALFORMED_CALL, "an empty list of calls")
    return tuple(call_of(call) for call in calls)


def _responses(value: str, before: list[Turn]) -> list[str]:
    """One observation answers one call; after n parallel calls a JSON list of n results answers all of them."""
    calls = before[-1].calls if before else ()
    if len(calls) < 2:
        return [value]
    try:
        results = read_json(value)
    except ValueError:
        return [value]
    if not isinstance(results, list) or len(results) != len(calls):
        return [value]
    return [result if isinstance(result, str) else _text(result) for result in results]


def _text(value: Json) -> str:
    import msgspec

    return msgspec.json.encode(value).decode()
