"""glaiveai/glaive-function-calling-v2: two flat strings a row, or the same rows in ShareGPT form."""

import re
from functools import lru_cache

from seatrial.data.conversation import Conversation, Tool
from seatrial.data.notation import read_concatenated, read_json
from seatrial.data.reason import Reason, Unfaithful, excerpt
from seatrial.data.schema import Repairs, normalise_declarations
from seatrial.data.sources import sharegpt
from seatrial.data.sources.turns import Call, Row, Turn, arguments_of, call_of, converter, id_of, messages_of, text_of

END = "<|endoftext|>"
MARKER = "<functioncall>"
HEADER = re.compile(r"\n\n(USER|ASSISTANT|FUNCTION RESPONSE):")
# Neither JSON nor a Python literal: a single-quoted string that holds JSON with raw apostrophes.
QUOTED_ARGUMENTS = re.compile(r"""\{\s*"name":\s*"([^"]*)",\s*"arguments":\s*'(.*)'\s*\}""", re.DOTALL)
# What every row's system string says; the chat template of the trained model takes its place.
ENVELOPES = (
    "",
    "You are a helpful assistant with access to the following functions. Use them if required -",
    "You are a helpful assistant, with no access to external functions.",
)


@converter
def convert(row: Row) -> Conversation:
    """``{"system": str, "chat": str}``, or ShareGPT turns; the row's keys tell which.

    ``system`` is a prompt and any number of JSON objects one after another. ``chat`` holds the turns under headers
    after blank lines; an assistant's turn ends in ``<|endoftext|>``, and ``<functioncall>`` opens its one call.
    """
    if "conversations" in row and "chat" not in row:
        return sharegpt.read(row, "glaive")
    prompt, tools, repairs = _read_system(text_of(row, "system"))
    mended: Repairs = {}
    turns = [] if prompt in ENVELOPES else [Turn("system", prompt)]
    turns += _read_chat(text_of(row, "chat"), mended)
    return Conversation(id_of(row), "glaive", messages_of(turns), tools, repairs=(*repairs, *mended))


@lru_cache(maxsize=1024)
def _read_system(system: str) -> tuple[str, tuple[Tool, ...], tuple[str, ...]]:
    text = system.strip().removeprefix("SYSTEM:").strip()
    start = text.find("{")
    if start < 0:
        return text, (), ()
    try:
        declarations = read_concatenated(text[start:])
    except ValueError as error:
        raise Unfaithful(Reason.BAD_TOOLS, f"{error}: {excerpt(text[start:])}") from error
    return text[:start].strip(), *normalise_declarations(declarations)


def _read_chat(chat: str, repairs: Repairs) -> list[Turn]:
    before, *parts = HEADER.split("\n\n" + chat.lstrip())
    if before.strip():
        raise Unfaithful(Reason.WRONG_SHAPE, f"text before the first turn: {excerpt(before)}")
    return [_read_turn(speaker, body.strip(), repairs) for speaker, body in zip(parts[::2], parts[1::2], strict=True)]


def _read_turn(speaker: str, body: str, repairs: Repairs) -> Turn:
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
    return Turn("assistant", said.strip(), (_read_call(call.strip(), repairs),) if marker else ())


def _read_call(text: str, repairs: Repairs) -> Call:
    if quoted := QUOTED_ARGUMENTS.fullmatch(text):
        name, arguments = quoted.groups()
        try:
            return Call(name, arguments_of(arguments, name))
        except Unfaithful:
            if MARKER in arguments:
                raise Unfaithful(Reason.MALFORMED_CALL, f"several calls in one turn: {excerpt(text)}") from None
            if "\\'" not in arguments:
                raise
        # Quoted as Python would; JSON has no such escape, so it can mean nothing else.
        repairs["escaped_apostrophe"] = None
        return Call(name, arguments_of(arguments.replace("\\'", "'"), name))
    try:
        value = read_json(text)
    except ValueError as error:
        raise Unfaithful(_why_malformed(text), f"{error}: {excerpt(text)}") from error
    return call_of(value)


def _why_malformed(text: str) -> Reason:
    """A whole call with something after it is another defect than a broken call."""
    return Reason.TEXT_AFTER_CALL if QUOTED_ARGUMENTS.match(text) else Reason.MALFORMED_CALL
