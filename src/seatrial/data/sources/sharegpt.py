"""ShareGPT turns with ``function_call`` and ``observation``, as LLaMA-Factory and APIGen-MT write them."""

from seatrial.data.conversation import Conversation, Role
from seatrial.data.notation import json_text, read_json
from seatrial.data.reason import Reason, Unfaithful, excerpt
from seatrial.data.schema import normalise_tools
from seatrial.data.sources.turns import (
    Json,
    Row,
    Turn,
    calls_of,
    converter,
    id_of,
    list_of,
    messages_of,
    pending_calls,
    split_responses,
)

ROLES: dict[str, Role] = {
    "system": "system",
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "observation": "tool",
    "tool": "tool",
    "tool_response": "tool",
    "function_response": "tool",
}
CALL_SPEAKERS = ("function_call", "tool_call")


@converter
def convert(row: Row) -> Conversation:
    """``{"conversations": [{"from", "value"}...], "tools": JSON text, "system"?}``.

    A ``function_call`` is one call or a list of parallel ones; text that the assistant says right before it becomes
    the content of the same turn, and is recorded as a repair.
    """
    return read(row, "sharegpt")


def read(row: Row, source: str) -> Conversation:
    """Like :func:`convert`, for a named source.

    Raises:
        Unfaithful: the row cannot be read.
    """
    tools, tool_repairs = normalise_tools(row.get("tools"))
    repairs = list(tool_repairs)
    turns = system_turn(row)
    for number, entry in enumerate(list_of(row, "conversations")):
        read_turns = _turns(*speaker_and_value(entry, number), number, turns)
        if read_turns[0].calls and turns and turns[-1].role == "assistant" and not turns[-1].calls:
            repairs.append("assistant_turns_merged")
            read_turns = [Turn("assistant", turns.pop().content, read_turns[0].calls)]
        turns += read_turns
    return Conversation(id_of(row), source, messages_of(turns), tools, repairs=tuple(repairs))


def system_turn(row: Row) -> list[Turn]:
    """The turn of a row's own ``system`` field, when there is one."""
    system = row.get("system")
    if system is not None and not isinstance(system, str):
        raise Unfaithful(Reason.WRONG_SHAPE, f"system is {type(system).__name__}, not text")
    return [Turn("system", system)] if system and system.strip() else []


def speaker_and_value(entry: Json, number: int) -> tuple[str, Json]:
    """``from`` and ``value`` of a turn."""
    if not isinstance(entry, dict):
        raise Unfaithful(Reason.WRONG_SHAPE, f"turn {number} is {type(entry).__name__}, not an object")
    speaker = entry.get("from")
    if not isinstance(speaker, str):
        raise Unfaithful(Reason.UNKNOWN_ROLE, f"turn {number} is from {excerpt(speaker)}")
    return speaker, entry.get("value")


def role_and_text(speaker: str, value: Json, number: int) -> tuple[Role, str]:
    """The role that ``speaker`` stands for, and what it says."""
    if speaker not in ROLES:
        raise Unfaithful(Reason.UNKNOWN_ROLE, f"turn {number} is from {excerpt(speaker)}")
    if not isinstance(value, str):
        raise Unfaithful(Reason.WRONG_SHAPE, f"turn {number}: value is {type(value).__name__}, not text")
    return ROLES[speaker], value


def _turns(speaker: str, value: Json, number: int, before: list[Turn]) -> list[Turn]:
    if speaker in CALL_SPEAKERS:
        if isinstance(value, str):
            try:
                value = read_json(value)
            except ValueError as error:
                raise Unfaithful(Reason.MALFORMED_CALL, f"turn {number}: {error}: {excerpt(value)}") from error
        return [Turn("assistant", "", calls_of(value))]
    if ROLES.get(speaker) == "tool" and isinstance(value, (dict, list)):
        value = json_text(value)
    role, text = role_and_text(speaker, value, number)
    if role == "tool":
        return [Turn("tool", response) for response in split_responses(text, pending_calls(before))]
    return [Turn(role, text)]
