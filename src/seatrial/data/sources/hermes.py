"""NousResearch/hermes-function-calling-v1 and its kin: calls between tags inside ShareGPT turns.

The tags hold JSON in the current files and Python literals in older generations of the same rows.
"""

import re
from collections.abc import Sequence
from contextlib import suppress

from seatrial.data.conversation import Conversation, Tool
from seatrial.data.notation import json_text, read_concatenated, read_either, read_literal
from seatrial.data.reason import Reason, Unfaithful, excerpt
from seatrial.data.schema import normalise_tools
from seatrial.data.sources.sharegpt import entries_of, role_and_text, system_turn
from seatrial.data.sources.turns import (
    Call,
    Json,
    Row,
    Turn,
    call_of,
    converter,
    id_of,
    messages_of,
    pending_calls,
    split_responses,
)
from seatrial.data.wellformed import accepts

CALL_TAG = re.compile(r"(</?tool_call>)")
RESPONSE_TAG = re.compile(r"(</?tool_response>)")
# How the dataset's own prompts begin; the chat template of the trained model takes their place.
ENVELOPES = (
    "You are a function calling AI model.",
    "You are an expert structured information extraction AI model.",
)


@converter
def convert(row: Row) -> Conversation:
    """``{"conversations": [{"from", "value"}...], "tools": JSON text}``, or a JSON-mode row, which has no tools.

    Rows without ``tools`` declare them in the system prompt between ``<tools>`` tags, of which the prompt's prose may
    hold empty decoys. A prompt that declares tools is dropped, since the template writes its own; any other stays.
    """
    dropped: dict[str, None] = {}
    spoken = [(*role_and_text(entry), entry.weight) for entry in entries_of(row, dropped)]
    prompts = [text for role, text, _ in spoken if role == "system"]
    tools, tool_repairs = normalise_tools(row.get("tools") or _declared(prompts))
    repairs = [*tool_repairs, *dropped]
    turns = system_turn(row)
    for role, text, weight in spoken:
        match role:
            case "assistant":
                turns.append(_assistant_turn(text, weight, tools, repairs))
            case "tool":
                turns += _tool_turns(text, pending_calls(turns), repairs)
            case "system" if _declarations(text) or text.lstrip().startswith(ENVELOPES):
                if not text.lstrip().startswith(ENVELOPES):
                    repairs.append("system_prompt_dropped")
            case _:
                turns.append(Turn(role, text))
    return Conversation(id_of(row), "hermes", messages_of(turns), tools, repairs=tuple(dict.fromkeys(repairs)))


def _declarations(prompt: str) -> list[str]:
    """What stands between each ``</tools>`` and the ``<tools>`` right before it, without empty decoys."""
    *closed, _ = prompt.split("</tools>")
    bodies = [part.rpartition("<tools>")[2] for part in closed if "<tools>" in part]
    return [body.strip() for body in bodies if body.strip()]


def _declared(prompts: Sequence[str]) -> Json:
    """The first readable declaration in the prompts: a list, its text, or one JSON object after another."""
    bodies = [body for prompt in prompts for body in _declarations(prompt)]
    for body in bodies:
        try:
            value = read_concatenated(body)
            return value[0] if len(value) == 1 else value
        except ValueError:
            with suppress(ValueError):
                read_literal(body)
                return body
    if bodies:
        raise Unfaithful(Reason.BAD_TOOLS, f"nothing readable between <tools> tags: {excerpt(bodies[0])}")
    return None


def _blocks(text: str, tag: re.Pattern[str], reason: Reason) -> tuple[list[str], list[str]]:
    """What stands outside and what stands inside of tags, which must come in pairs."""
    parts = tag.split(text)
    tags = parts[1::2]
    if any(found.startswith("</") != (number % 2 == 1) for number, found in enumerate(tags)) or len(tags) % 2:
        raise Unfaithful(reason, f"unpaired tag: {excerpt(text)}")
    return parts[0::4], parts[2::4]


def _assistant_turn(text: str, weight: float, tools: Sequence[Tool], repairs: list[str]) -> Turn:
    """Text, then one call per ``<tool_call>`` block; nothing may follow the first block but other blocks."""
    (said, *after), bodies = _blocks(text, CALL_TAG, Reason.MALFORMED_CALL)
    if any(_trimmed(outside, repairs) for outside in after):
        raise Unfaithful(Reason.TEXT_AFTER_CALL, excerpt(" ".join(after)))
    calls = tuple(_read_call(body, tools, repairs) for body in bodies)
    return Turn("assistant", said.strip(), calls, weight=weight)


def _trimmed(text: str, repairs: list[str]) -> str:
    """Without white space at both ends, nor newlines that were escaped once too often."""
    start, end = 0, len(text)
    while text.startswith("\\n", start) or text[start : start + 1].isspace():
        start += 1 if text[start].isspace() else 2
    while end > start and (text.endswith("\\n", start, end) or text[end - 1].isspace()):
        end -= 1 if text[end - 1].isspace() else 2
    if "\\n" in text[:start] + text[end:]:
        repairs.append("escaped_newline_dropped")
    return text[start:end]


def _read_call(body: str, tools: Sequence[Tool], repairs: list[str]) -> Call:
    text = _trimmed(body, repairs)
    try:
        value, is_python = read_either(text)
    except ValueError as error:
        raise Unfaithful(Reason.MALFORMED_CALL, f"{error}: {excerpt(text)}") from error
    if is_python:
        repairs.append("python_literal_call")
    if isinstance(value, dict) and "name" not in value and isinstance(arguments := value.get("arguments"), dict):
        name = arguments.get("name")
        if any(tool.name == name for tool in tools):  # the brace closed one key too late
            repairs.append("name_moved_outward")
            value = {"name": name, "arguments": {key: arguments[key] for key in arguments if key != "name"}}
    return _with_argument_renamed(call_of(value), tools, repairs)


def _with_argument_renamed(call: Call, tools: Sequence[Tool], repairs: list[str]) -> Call:
    """Extraction rows name the one argument of a one-parameter tool at will: give it the declared name if it fits."""
    tool = next((tool for tool in tools if tool.name == call.name), None)
    if tool is None or len(call.arguments) != 1 or len(tool.parameters["properties"]) != 1:
        return call
    (declared,), ((given, value),) = tool.parameters["properties"], call.arguments.items()
    if given == declared or not accepts(tool, {declared: value}):
        return call
    repairs.append(f"argument_renamed: {call.name}.{given} to {declared}")
    return Call(call.name, {declared: value})


def _tool_turns(text: str, pending: int, repairs: list[str]) -> list[Turn]:
    """One turn per ``<tool_response>`` block; without tags the whole text is one response, or a list of them."""
    outside, blocks = _blocks(text, RESPONSE_TAG, Reason.MALFORMED_RESPONSE)
    if blocks and any(part.strip() for part in outside):
        raise Unfaithful(Reason.MALFORMED_RESPONSE, f"text beside <tool_response>: {excerpt(text)}")
    bodies = [_trimmed(body, repairs) for body in blocks]
    if len(bodies) < 2:
        bodies = split_responses(bodies[0] if bodies else text.strip(), pending)
    return [_response(body, repairs) for body in bodies]


def _response(body: str, repairs: list[str]) -> Turn:
    """``{"name", "content"}`` is taken apart (an id in it belongs to no call); any other response stays as it is."""
    try:
        value, is_python = read_either(body)
    except ValueError:
        return Turn("tool", body)
    parts = value.keys() - {"tool_call_id"} if isinstance(value, dict) else set()
    if parts == {"name", "content"} and isinstance(value["name"], str):
        return Turn("tool", json_text(value["content"]), name=value["name"])
    if is_python:
        repairs.append("python_literal_response")
    return Turn("tool", json_text(value) if is_python else body)
