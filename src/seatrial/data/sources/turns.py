"""What the sources share: reading fields of a row, reading a call, and pairing calls with their responses."""

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import msgspec

from seatrial.data.conversation import Conversation, Message, Rejection, Role, ToolCall
from seatrial.data.notation import json_text, read_concatenated, read_json
from seatrial.data.reason import Reason, Unfaithful, excerpt

Json = Any
Row = dict[str, Json]
Converter = Callable[[Row], Conversation | Rejection]


class Call(msgspec.Struct, frozen=True):
    """A call as its row has it; most formats know no ids."""

    name: str
    arguments: dict[str, Json]
    id: str = ""


class Turn(msgspec.Struct, frozen=True):
    """One turn as its row has it. A tool turn may say whom it answers, by ``answers_id`` or by ``name``."""

    role: Role
    content: str = ""
    calls: tuple[Call, ...] = ()
    answers_id: str = ""
    name: str = ""
    weight: float = 1.0


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


def list_of(row: Row, key: str) -> list[Json]:
    """``row[key]``, which must be a list, or JSON text of one."""
    value = row.get(key)
    if isinstance(value, str):
        try:
            value = read_json(value)
        except ValueError as error:
            raise Unfaithful(Reason.WRONG_SHAPE, f"{key}: {error}: {excerpt(value)}") from error
    if not isinstance(value, list):
        raise Unfaithful(Reason.WRONG_SHAPE, f"{key} is {type(value).__name__}, not a list")
    return value


def id_of(row: Row) -> str:
    """The row's own id as text, empty when it has none; the pipeline then numbers it."""
    value = row.get("id")
    return str(value) if isinstance(value, (str, int)) and not isinstance(value, bool) else ""


def call_of(value: Json, id: str = "") -> Call:
    """A call from ``{"name": ..., "arguments": {...}}``; arguments may be their own JSON text."""
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        raise Unfaithful(Reason.MALFORMED_CALL, f"not an object with a name: {excerpt(value)}")
    if "arguments" not in value:
        raise Unfaithful(Reason.MALFORMED_CALL, f"{value['name']}: no arguments: {excerpt(value)}")
    return Call(value["name"], arguments_of(value["arguments"], value["name"]), id)


def calls_of(value: Json) -> tuple[Call, ...]:
    """One call or a list of parallel ones."""
    calls = value if isinstance(value, list) else [value]
    if not calls:
        raise Unfaithful(Reason.MALFORMED_CALL, "an empty list of calls")
    return tuple(call_of(call) for call in calls)


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


def weight_of(value: Json, place: str) -> float:
    """Whether a turn carries loss: 1, also where nothing is said, or 0."""
    if value is None:
        return 1.0
    if isinstance(value, bool) or value not in (0, 1):
        raise Unfaithful(Reason.WRONG_SHAPE, f"{place}: weight is {excerpt(value)}, neither 0 nor 1")
    return float(value)


def note_dropped(entry: Row, known: frozenset[str], repairs: dict[str, None]) -> None:
    """Record the fields of a turn that a record has no place for and that say something."""
    if not entry.keys() <= known:
        dropped = [key for key, value in entry.items() if key not in known and value not in (None, [], "", {})]
        repairs |= dict.fromkeys(f"message_field_dropped: {key}" for key in dropped)


def split_responses(text: str, calls: int) -> list[str]:
    """The responses to parallel calls that came as one text: a JSON list, or values one after another, of as many.

    Any other text is a single response.
    """
    if calls < 2:
        return [text]
    try:
        results = read_concatenated(text.strip())
    except ValueError:
        return [text]
    if len(results) == 1 and isinstance(results[0], list):
        results = results[0]
    return [json_text(result) for result in results] if len(results) == calls else [text]


def pending_calls(turns: list[Turn]) -> int:
    """How many calls of the last assistant turn have no response yet."""
    for answered, turn in enumerate(reversed(turns)):
        if turn.role != "tool":
            return len(turn.calls) - answered
    return 0


def messages_of(turns: Iterable[Turn]) -> tuple[Message, ...]:
    """Messages with numbered calls, each response paired with the call that it answers.

    Calls keep the ids they have and are numbered otherwise. A response goes to the call whose id it gives; without
    one, to the first unanswered call of the name it gives; without either, to the first unanswered call.

    Raises:
        Unfaithful: RESPONSE_WITHOUT_CALL.
    """
    messages: list[Message] = []
    waiting: list[ToolCall] = []
    number = 0
    for turn in turns:
        if turn.role == "tool":
            answered = _answered(turn, waiting)
            waiting.remove(answered)
            messages.append(Message("tool", turn.content, tool_call_id=answered.id, name=answered.name))
            continue
        calls = []
        for call in turn.calls:
            calls.append(ToolCall(call.name, call.arguments, call.id or f"call_{number}"))
            number += 1
        if calls:
            waiting = list(calls)
        messages.append(Message(turn.role, turn.content, tuple(calls), name=turn.name, weight=turn.weight))
    return tuple(messages)


def _answered(turn: Turn, waiting: list[ToolCall]) -> ToolCall:
    for call in waiting:
        if turn.answers_id == call.id and turn.name not in ("", call.name):
            raise Unfaithful(Reason.CALL_IDS_DO_NOT_PAIR, f"{turn.name} answers {call.id}, a call of {call.name}")
        if turn.answers_id == call.id or (not turn.answers_id and turn.name in ("", call.name)):
            return call
    whom = turn.answers_id or turn.name or "nobody"
    raise Unfaithful(
        Reason.RESPONSE_WITHOUT_CALL, f"a response to {whom} without an open call: {excerpt(turn.content)}"
    )
