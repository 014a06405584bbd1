"""glaiveai/glaive-function-calling-v2: two flat strings a row, or the same rows in ShareGPT form."""

import json
import re
from functools import lru_cache

import msgspec

from seatrial.data.conversation import Conversation, Tool
from seatrial.data.notation import read_json
from seatrial.data.reason import Reason, Unfaithful, excerpt
from seatrial.data.schema import normalise_tools
from seatrial.data.sources import sharegpt
from seatrial.data.sources.turns import (
    Call,
    Json,
    Row,
    Turn,
    arguments_of,
    call_of,
    converter,
    id_of,
    messages_of,
    text_of,
)

END = "<|endoftext|>"
MARKER = "<functioncall>"
HEADER = re.compile(r"(?:\A\s*|\n\n+)(USER|ASSISTANT|FUNCTION RESPONSE): ?")
QUOTED_ARGUMENTS = re.compile(r"""\{\s*"name":\s*"([^"]*)",\s*"arguments":\s*'(.*)'\s*\}""", re.DOTALL)
BOILERPLATE = (
    "You are a helpful assistant with access to the following functions. Use them if required -",
    "You are a helpful assistant, with no access to external functions.",
)


@converter
def convert(row: Row) -> Conversation:
    """``{"system": str, "chat": str}``, or ShareGPT turns, told apart by the row's keys."""
    if "conversations" in row and "chat" not in row:
        return sharegpt.read(row, "glaive")
    prompt, tools, repairs = _read_system(text_of(row, "system"))
    turns = [Turn("system", prompt)] if prompt else []
    turns += _read_chat(text_of(row, "chat"))
    return Conversation(id_of(row), "glaive", messages_of(turns), tools, repairs=repairs)


@lru_cache(maxsize=8192)
def _read_system(system: str) -> tuple[str, tuple[Tool, ...], tuple[str, ...]]:
    """The prompt (empty for the dataset's own envelope), and the JSON objects that follow it one after another."""
    text = system.strip().removeprefix("SYSTEM:").strip()
    start = text.find("{")
    prompt = (text if start < 0 else text[:start]).strip()
    tools, repairs = normalise_tools(_concatenated(text[start:]) if start >= 0 else None)
    return "" if prompt in BOILERPLATE else prompt, tools, repairs


def _concatenated(text: str) -> list[Json]:
    decoder = json.JSONDecoder()
    values, position = [], 0
    while position < len(text):
        try:
            value, position = decoder.raw_decode(text, position)
        except ValueError as error:
            raise Unfaithful(Reason.BAD_TOOLS, f"{error}: {excerpt(text[position:])}") from error
        values.append(value)
        while position < len(text) and text[position].isspace():
            position += 1
    return values


def _read_chat(chat: str) -> list[Turn]:
    before, *parts = HEADER.split(chat)
    if before.strip():
        raise Unfaithful(Reason.WRONG_SHAPE, f"text before the first turn: {excerpt(before)}")
    return [_read_turn(speaker, body.strip()) for speaker, body in zip(parts[::2], parts[1::2], strict=True)]


def _read_turn(speaker: str, body: str) -> Turn:
    if speaker != "ASSISTANT":
        if END in body or MARKER in body:
            raise Unfaithful(Reason.STRAY_MARKER, f"in a {speaker} turn: {excerpt(body)}")
        return Turn("user" if speaker == "USER" else "tool", body)
    if not body.endswith(END):
        raise Unfaithful(Reason.UNTERMINATED_TURN, f"no {END} after: {excerpt(body[-80:])}")
    body = body.removesuffix(END).strip()
    if END in body:
        raise Unfaithful(Reason.STRAY_MARKER, f"{END} within an assistant turn: {excerpt(body)}")
    said, marker, call = body.partition(MARKER)
    return Turn("assistant", said.strip(), (_read_call(call.strip()),) if marker else ())


def _read_call(text: str) -> Call:
    """``{"name": "f", "arguments": '{"a": 1}'}``: JSON but for the quotes around the arguments."""
    if quoted := QUOTED_ARGUMENTS.fullmatch(text):
        name, arguments = quoted.groups()
        return Call(name, arguments_of(arguments, name))
    try:
        return call_of(read_json(text))
    except msgspec.DecodeError as error:
        raise Unfaithful(Reason.MALFORMED_CALL, f"{error}: {excerpt(text)}") from error
