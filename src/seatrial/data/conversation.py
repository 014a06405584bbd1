"""The one internal form of a training example: messages, tools and calls, with arguments as objects.

In memory arguments and schemas are objects. On disk both are JSON *text*, because Arrow, through which many
readers load JSON lines, merges nested structs and invents nulls.
"""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from seatrial.errors import UsageError

Json = Any
Role = Literal["system", "user", "assistant", "tool"]


class ToolCall(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call. ``id`` pairs it with the tool message that answers it."""

    name: str
    arguments: dict[str, Json]
    id: str = ""


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One turn. ``weight`` 0 takes an assistant turn out of the loss."""

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    weight: float = 1.0


class Tool(msgspec.Struct, frozen=True, omit_defaults=True):
    """A function the model may call; ``parameters`` is a JSON Schema (draft 2020-12) of type object."""

    name: str
    description: str = ""
    parameters: dict[str, Json] = msgspec.field(default_factory=lambda: {"type": "object", "properties": {}})


class Conversation(msgspec.Struct, frozen=True, omit_defaults=True):
    """A training or evaluation example. ``repairs`` says what a converter had to mend to read it."""

    id: str
    source: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...] = ()
    category: str = ""
    repairs: tuple[str, ...] = ()


class Rejection(msgspec.Struct, frozen=True):
    """A row that could not be converted faithfully: a short countable reason, and the particulars."""

    reason: str
    detail: str = ""


def template_messages(messages: tuple[Message, ...]) -> list[dict[str, Json]]:
    """Messages as chat templates want them: OpenAI's shape, but arguments as objects."""
    rendered: list[dict[str, Json]] = []
    for message in messages:
        entry: dict[str, Json] = {"role": message.role, "content": message.content}
        if message.tool_calls:
            entry["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
                for call in message.tool_calls
            ]
        if message.tool_call_id:
            entry["tool_call_id"] = message.tool_call_id
        if message.name:
            entry["name"] = message.name
        rendered.append(entry)
    return rendered


def template_tools(tools: tuple[Tool, ...]) -> list[dict[str, Json]] | None:
    """Tools as chat templates want them; None, not an empty list, when there are none."""
    return [
        {
            "type": "function",
            "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
        }
        for tool in tools
    ] or None


def encode(conversation: Conversation) -> bytes:
    """One line of records.jsonl, newline included."""
    messages: list[Message | dict[str, Json]] = []
    for message in conversation.messages:
        if not message.tool_calls:
            messages.append(message)
            continue
        entry = msgspec.to_builtins(message)
        entry["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _text(call.arguments)},
            }
            for call in message.tool_calls
        ]
        messages.append(entry)
    tools = msgspec.json.encode(template_tools(conversation.tools) or [])
    record = {
        "id": conversation.id,
        "source": conversation.source,
        "messages": messages,
        "tools": msgspec.json.format(tools, indent=0).decode(),  # the spacing of _text, three times as fast
        "category": conversation.category,
        "repairs": list(conversation.repairs),
    }
    return msgspec.json.encode(record) + b"\n"


def decode(line: bytes | str) -> Conversation:
    """Inverse of :func:`encode`.

    Raises:
        ValueError: the line is not a record (msgspec's errors are ValueErrors too).
    """
    record = _DECODER.decode(line)
    messages = tuple(
        Message(
            role=message.role,
            content=message.content,
            tool_calls=tuple(
                ToolCall(call.function.name, _ARGUMENTS.decode(call.function.arguments), call.id)
                for call in message.tool_calls
            ),
            tool_call_id=message.tool_call_id,
            name=message.name,
            weight=message.weight,
        )
        for message in record.messages
    )
    tools = tuple(entry.function for entry in _TOOLS.decode(record.tools))
    return Conversation(record.id, record.source, messages, tools, record.category, record.repairs)


def records_file(path: Path) -> Path:
    """``path`` itself, or the ``records.jsonl`` in it.

    Raises:
        UsageError: there is no such file.
    """
    file = path / "records.jsonl" if path.is_dir() else path
    if not file.is_file():
        raise UsageError(f"{file}: no such file; make it with `seatrial data prepare`")
    return file


def read_records(path: Path) -> Iterator[Conversation]:
    """Conversations of a ``records.jsonl`` file, or of the one in a directory.

    Raises:
        UsageError: no such file, or a line that is not a record; names file and line.
    """
    file = records_file(path)
    with file.open("rb") as lines:
        yield from decode_lines(file, lines, 1)


def decode_lines(file: Path, lines: Iterable[bytes], first: int) -> Iterator[Conversation]:
    """Conversations of ``lines``, of which the first is line ``first`` of ``file``; raises as :func:`read_records`."""
    for number, line in enumerate(lines, first):
        try:
            yield decode(line)
        except ValueError as error:
            raise UsageError(
                f"{file}:{number}: not a seatrial record ({error}); run `seatrial data prepare`"
            ) from error


def _text(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(", ", ": "))


class _Function(msgspec.Struct):
    name: str
    arguments: str


class _Call(msgspec.Struct):
    function: _Function
    id: str = ""


class _StoredMessage(msgspec.Struct):
    role: Role
    content: str = ""
    tool_calls: tuple[_Call, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    weight: float = 1.0


class _StoredTool(msgspec.Struct):
    function: Tool


class _StoredRecord(msgspec.Struct):
    id: str
    source: str
    messages: tuple[_StoredMessage, ...]
    tools: str = "[]"
    category: str = ""
    repairs: tuple[str, ...] = ()


_DECODER = msgspec.json.Decoder(_StoredRecord)
_ARGUMENTS = msgspec.json.Decoder(dict[str, Any])
_TOOLS = msgspec.json.Decoder(tuple[_StoredTool, ...])
