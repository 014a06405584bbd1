"""OpenAI's fine-tuning lines and the datasets that share their shape: TRL's columns, role/content conversations."""

from collections.abc import Sequence
from itertools import count

import msgspec

from seatrial.data.conversation import Conversation, Role
from seatrial.data.notation import json_text, read_json
from seatrial.data.reason import Reason, Unfaithful, excerpt
from seatrial.data.schema import normalise_tools
from seatrial.data.sources.turns import (
    Call,
    Json,
    Row,
    Turn,
    arguments_of,
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
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
MESSAGE_KEYS = frozenset(
    {"role", "content", "tool_calls", "function_call", "tool_call_id", "name", "weight", "type", "id"}
)


@converter
def convert(row: Row) -> Conversation:
    """``{"messages": [...], "tools": [...]}``; TRL's ``prompt`` and ``completion``; or OpenAI's older ``functions``.

    Lists may be their own JSON text, arguments an object or its JSON text, content text or a list of text parts. A
    ``prompt`` that is plain text is what a user says, a ``completion`` what the assistant answers. Responses are
    paired by id; a conversation without any ids is paired by name and order.
    """
    declared = row.get("tools")
    tools, tool_repairs = normalise_tools(declared if declared is not None else row.get("functions"))
    repairs = dict.fromkeys(tool_repairs)
    turns: list[Turn] = []
    for number, entry in enumerate(_entries(row, repairs)):
        turn = _turn(entry, number, repairs)
        parts = [turn.content]
        if turn.role == "tool" and not turn.answers_id and not turn.name:
            parts = split_responses(turn.content, pending_calls(turns))
        turns += [msgspec.structs.replace(turn, content=part) for part in parts]
    identified = {bool(call.id) for turn in turns for call in turn.calls}
    identified |= {bool(turn.answers_id) for turn in turns if turn.role == "tool"}
    if len(identified) > 1:
        raise Unfaithful(Reason.CALL_IDS_DO_NOT_PAIR, "some calls or responses have an id and some have none")
    return Conversation(id_of(row), "openai", messages_of(turns), tools, repairs=tuple(repairs))


def _entries(row: Row, repairs: dict[str, None]) -> list[Json]:
    for key in ("messages", "conversations", "conversation"):
        if row.get(key) is not None:
            return list_of(row, key)
    if "chosen" in row or "rejected" in row:
        raise Unfaithful(Reason.WRONG_SHAPE, "a preference pair holds no single answer; keep its chosen side only")
    if row.get("prompt") is None or row.get("completion") is None:
        raise Unfaithful(Reason.WRONG_SHAPE, "neither messages nor a prompt and its completion")
    return [*_side(row, "prompt", "user", repairs), *_side(row, "completion", "assistant", repairs)]


def _side(row: Row, key: str, speaker: Role, repairs: dict[str, None]) -> list[Json]:
    """A list of messages, or the one that a plain text stands for."""
    text = row[key]
    if not isinstance(text, str) or text.lstrip().startswith("[{"):
        return list_of(row, key)
    repairs["text_made_a_turn"] = None
    return [{"role": speaker, "content": text}]


def _turn(entry: Json, number: int, repairs: dict[str, None]) -> Turn:
    if not isinstance(entry, dict):
        raise Unfaithful(Reason.WRONG_SHAPE, f"message {number} is {type(entry).__name__}, not an object")
    role = entry.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise Unfaithful(Reason.UNKNOWN_ROLE, f"message {number} is of role {excerpt(role)}")
    note_dropped(entry, MESSAGE_KEYS, repairs)
    content, calls = _content(entry.get("content"), role, number, repairs)
    calls += _tool_calls(entry.get("tool_calls"), number, repairs)
    if entry.get("function_call") is not None:
        calls.append(_function(entry["function_call"], "", repairs))
    return Turn(
        ROLES[role],
        content,
        tuple(calls),
        answers_id=_text(entry, "tool_call_id", number),
        name=_text(entry, "name", number),
        weight=weight_of(entry.get("weight"), f"message {number}"),
    )


def _text(entry: Row, key: str, number: int) -> str:
    value = entry.get(key)
    if value is not None and not isinstance(value, str):
        raise Unfaithful(Reason.WRONG_SHAPE, f"message {number}: {key} is {type(value).__name__}, not text")
    return value or ""


def _content(value: Json, role: str, number: int, repairs: dict[str, None]) -> tuple[str, list[Call]]:
    """Text of a message, and the calls that content parts may hold (LLaMA-Factory's newer form)."""
    if value is None:
        return "", []
    if isinstance(value, str):
        return value, []
    if isinstance(value, list) and all(isinstance(part, dict) and "type" in part for part in value):
        return _parts(value, number, repairs)
    if role in ("tool", "function"):
        return json_text(value), []
    raise Unfaithful(Reason.WRONG_SHAPE, f"message {number}: content is {type(value).__name__}, not text")


def _parts(parts: Sequence[Row], number: int, repairs: dict[str, None]) -> tuple[str, list[Call]]:
    texts: list[str] = []
    calls: list[Call] = []
    for part in parts:
        value = part.get("text", part.get("value"))
        match part["type"]:
            case "text" | "input_text" | "output_text" if isinstance(value, str):
                if calls:
                    raise Unfaithful(Reason.TEXT_AFTER_CALL, f"message {number}: {excerpt(value)}")
                texts.append(value)
            case "tool_call":
                calls.append(_function(_read_text(value, number), "", repairs))
            case "reasoning" | "thinking":
                repairs[f"message_field_dropped: {part['type']}"] = None
            case kind:
                raise Unfaithful(Reason.WRONG_SHAPE, f"message {number}: content part of type {excerpt(kind)}")
    return "".join(texts), calls


def _tool_calls(value: Json, number: int, repairs: dict[str, None]) -> list[Call]:
    value = _read_text(value, number)
    if value is None:
        return []
    if not isinstance(value, list):
        raise Unfaithful(Reason.MALFORMED_CALL, f"message {number}: tool_calls are {type(value).__name__}, not a list")
    calls = []
    for entry, position in zip(value, count()):
        if not isinstance(entry, dict):
            raise Unfaithful(Reason.MALFORMED_CALL, f"message {number}, call {position}: {excerpt(entry)}")
        function = entry.get("function")
        calls.append(_function(entry if function is None else function, _text(entry, "id", number), repairs))
    return calls


def _read_text(value: Json, number: int) -> Json:
    if not isinstance(value, str):
        return value
    try:
        return read_json(value) if value.strip() else None
    except ValueError as error:
        raise Unfaithful(Reason.MALFORMED_CALL, f"message {number}: {error}: {excerpt(value)}") from error


def _function(value: Json, id: str, repairs: dict[str, None]) -> Call:
    """A call of a function that takes nothing often has null, its text or empty text where ``{}`` belongs."""
    if not isinstance(value, dict) or not isinstance(name := value.get("name"), str):
        raise Unfaithful(Reason.MALFORMED_CALL, f"not a function with a name: {excerpt(value)}")
    arguments = value.get("arguments")
    if arguments is None or (isinstance(arguments, str) and arguments.strip() in ("", "null")):
        repairs[f"empty_arguments: {name}"] = None
        arguments = {}
    return Call(name, arguments_of(arguments, name), id)
