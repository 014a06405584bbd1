"""What the formats without call ids share: reading a call's text, and handing each response its call's id."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from seatrial.data.conversation import Conversation, Message, Rejection, Role, ToolCall
from seatrial.data.notation import read_json
from seatrial.data.reason import Reason, Unfaithful, excerpt

Json = Any
Row = dict[str, Json]
Converter = Callable[[Row], Conversation | Rejection]


@dataclass(frozen=True)
class Call:
    """A call before it has an id."""

    name: str
    arguments: dict[str, Json]


@dataclass(frozen=True)
class Turn:
    """One turn before its calls have ids."""

    role: Role
    content: str = ""
    calls: tuple[Call, ...] = ()


def converter(read: Callable[[Row], Conversation]) -> Converter:
    """Make a reader that raises :class:`Unfaithful` into one that returns the rejection."""

    @wraps(read)
    def convert(row: Row) -> Conversation | Rejection:
        try:
            return read(row)
        except Unfaithful as error:
            return error.rejection
        except RecursionError:
            return Rejection(Reason.NESTED_TOO_DEEP.value, "values are nested deeper than they can be read")

    return convert


def text_of(row: Row, key: str) -> str:
    """``row[key]``, which must be text."""
    value = row.get(key)
    if not isinstance(value, str):
        raise Unfaithful(Reason.WRONG_SHAPE, f"{key} is {type(value).__name__}, not text")
    return value


def id_of(row: Row) -> str:
    """The row's own id as text, empty when it has none; the pipeline then numbers it."""
    value = row.get("id")
    return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""


def call_of(value: Json) -> Call:
    """A call from ``{"name": ..., "arguments": {...}}``; arguments may be their own JSON text."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise Unfaithful(Reason.MALFORMED_CALL, f"not an object with a name: {excerpt(value)}")
    if "arguments" not in value:
        raise Unfaithful(Reason.MALFORMED_CALL, f"{value['name']}: no arguments")
    return Call(value["name"], arguments_of(value["arguments"], value["name"]))


def arguments_of(value: Json, name: str) -> dict[str, Json]:
    """Arguments as an object, from an object or its JSON text."""
    if isinstance(value, str):
        try:
            value = read_json(value)
        except ValueError as error:
            raise Unfaithful(Reason.ARGUMENTS_NOT_JSON, f"{name}: {error}: {excerpt(value)}") from error
    if not isinstance(value, dict):
        raise Unfaithful(Reason.ARGUMENTS_NOT_AN_OBJECT, f"{name}: {type(value).__name__}: {excerpt(value)}")
    return value


def messages_of(turns: Iterable[Turn]) -> tuple[Message, ...]:
    """Number the calls and give each response, in order, the id and name of the call that it answers."""
    messages: list[Message] = []
    waiting: list[ToolCall] = []
    number = 0
    for turn in turns:
        if turn.role == "tool":
            if not waiting:
                raise Unfaithful(Reason.RESPONSE_WITHOUT_CALL, excerpt(turn.content))
            call = waiting.pop(0)
            messages.append(Message("tool", turn.content, tool_call_id=call.id, name=call.name))
            continue
        calls = tuple(ToolCall(call.name, call.arguments, f"call_{number + i}") for i, call in enumerate(turn.calls))
        number += len(calls)
        if calls:
            waiting = list(calls)
        messages.append(Message(turn.role, turn.content, calls))
    return tuple(messages)
