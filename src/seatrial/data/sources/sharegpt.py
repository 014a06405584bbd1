"""ShareGPT turns with ``function_call`` and ``observation``, as LLaMA-Factory and APIGen-MT write them."""

from typing import NamedTuple

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
    note_dropped,
    pending_calls,
    split_responses,
    weight_of,
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
ENTRY_KEYS = frozenset({"from", "value", "weight"})


class Entry(NamedTuple):
    """One item of ``conversations``, as it is written."""

    number: int
    speaker: str
    value: Json
    weight: float = 1.0


@converter
def convert(row: Row) -> Conversation:
    """``{"conversations": [{"from", "value"}...], "tools": JSON text, "system"?}``.

    A ``function_call`` is one call or a list of parallel ones. What the assistant says right before it becomes the
    content of the same turn, and calls right before it are parallel to it; either is recorded as a repair.
    """
    return read(row, "sharegpt")


def read(row: Row, source: str) -> Conversation:
    """Like :func:`convert`, for a named source.

    Raises:
        Unfaithful: the row cannot be read.
    """
    tools, tool_repairs = normalise_tools(row.get("tools"))
    repairs = dict.fromkeys(tool_repairs)
    turns = system_turn(row)
    for entry in entries_of(row, repairs):
        read_turns = _turns(entry, turns)
        if read_turns[0].calls and turns and turns[-1].role == "assistant":
            repairs["assistant_turns_merged"] = None
            read_turns = [_merged(turns.pop(), read_turns[0])]
        turns += read_turns
    return Conversation(id_of(row), source, messages_of(turns), tools, repairs=tuple(repairs))


def system_turn(row: Row) -> list[Turn]:
    """The turn of a row's own ``system`` field, when there is one."""
    system = row.get("system")
    if system is not None and not isinstance(system, str):
        raise Unfaithful(Reason.WRONG_SHAPE, f"system is {type(system).__name__}, not text")
    return [Turn("system", system)] if system and system.strip() else []


def entries_of(row: Row, repairs: dict[str, None]) -> list[Entry]:
    """The turns of ``conversations``; fields that a record has no place for are recorded in ``repairs``."""
    return [_entry(entry, number, repairs) for number, entry in enumerate(list_of(row, "conversations"))]


def _entry(entry: Json, number: int, repairs: dict[str, None]) -> Entry:
    if not isinstance(entry, dict):
        raise Unfaithful(Reason.WRONG_SHAPE, f"turn {number} is {type(entry).__name__}, not an object")
    speaker = entry.get("from")
    if not isinstance(speaker, str):
        raise Unfaithful(Reason.UNKNOWN_ROLE, f"turn {number} is from {excerpt(speaker)}")
    note_dropped(entry, ENTRY_KEYS, repairs)
    return Entry(number, speaker, entry.get("value"), weight_of(entry.get("weight"), f"turn {number}"))


def role_and_text(entry: Entry) -> tuple[Role, str]:
    """The role that the speaker stands for, and what it says."""
    if entry.speaker not in ROLES:
        raise Unfaithful(Reason.UNKNOWN_ROLE, f"turn {entry.number} is from {excerpt(entry.speaker)}")
    if not isinstance(entry.value, str):
        raise Unfaithful(Reason.WRONG_SHAPE, f"turn {entry.number}: value is {type(entry.value).__name__}, not text")
    return ROLES[entry.speaker], entry.value


def _turns(entry: Entry, before: list[Turn]) -> list[Turn]:
    value = entry.value
    if entry.speaker in CALL_SPEAKERS:
        if isinstance(value, str):
            try:
                value = read_json(value)
            except ValueError as error:
                detail = f"turn {entry.number}: {error}: {excerpt(value)}"
                raise Unfaithful(Reason.MALFORMED_CALL, detail) from error
        return [Turn("assistant", "", calls_of(value), weight=entry.weight)]
    if ROLES.get(entry.speaker) == "tool" and isinstance(value, (dict, list)):
        entry = entry._replace(value=json_text(value))
    role, text = role_and_text(entry)
    if role == "tool":
        return [Turn("tool", response) for response in split_responses(text, pending_calls(before))]
    return [Turn(role, text, weight=entry.weight)]


def _merged(said: Turn, called: Turn) -> Turn:
    if said.weight != called.weight:
        raise Unfaithful(Reason.WRONG_SHAPE, "an answer and the call right after it have different weights")
    return Turn("assistant", said.content, (*said.calls, *called.calls), weight=said.weight)
