"""Team-ACE/ToolACE: tools as JSON inside the system prompt, calls as Python-like text with any characters in names.

A name may hold spaces, dots, slashes and parentheses (``[Market Trends API(trend_type="MARKET_INDEXES")]``), so no
Python parser reads it: a call starts with the longest declared name that is followed by an opening parenthesis.
"""

import re
from collections.abc import Sequence

from seatrial.data.conversation import Conversation, Tool
from seatrial.data.notation import read_either, read_prefix
from seatrial.data.reason import Reason, Unfaithful, excerpt
from seatrial.data.schema import normalise_tools
from seatrial.data.sources.sharegpt import entries_of, role_and_text, system_turn
from seatrial.data.sources.turns import (
    Call,
    Json,
    Row,
    Turn,
    converter,
    id_of,
    messages_of,
    pending_calls,
    split_responses,
)

ANNOUNCEMENT = re.compile(r"Here is a list of functions in JSON format[^\n\[]*\n?\s*")
# What prompts of this family say besides; the chat template of the trained model takes its place.
SENTENCES = (
    "You are an expert in composing functions.",
    "You are given a question and a set of possible functions.",
    "Based on the question, you will need to make one or more function/tool calls to achieve the purpose.",
    "If none of the function can be used, point it out.",
    "If none of the functions can be used, point it out.",
    "If the given question lacks the parameters required by the function, also point it out.",
    "You should only return the function call in tools call sections.",
    "You should only return the function calls in your response.",
    "Should you decide to return the function call(s).",
    "Put it in the format of [func1(params_name=params_value, params_name2=params_value2...), func2(params)]",
    "If you decide to invoke any of the function(s), you MUST put it in the format of "
    "[func_name1(params_name1=params_value1, params_name2=params_value2...), func_name2(params)]",
    "You SHOULD NOT include any other text in the response.",
    "NO other text MUST be included.",
)
ENVELOPE = re.compile("|".join(r"\s*".join(map(re.escape, sentence.split())) for sentence in SENTENCES))
LOOKS_LIKE_CALLS = re.compile(r"\[[^\[\]()=\n]{1,100}\(\s*(?:[\w$.\-]+\s*=|\)\s*[,\]])")
ARGUMENT_NAME = re.compile(r"[^=,()\[\]{}'\"]+")
QUOTED = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
OPENING, CLOSING = "([{", ")]}"


@converter
def convert(row: Row) -> Conversation:
    """``{"system": str, "conversations": [{"from": user | assistant | tool, "value"}...]}``."""
    tools: tuple[Tool, ...] = ()
    repairs: dict[str, None] = {}
    turns: list[Turn] = []
    for turn in system_turn(row):
        prompt, declarations = _read_system(turn.content)
        tools, tool_repairs = normalise_tools(declarations)
        repairs |= dict.fromkeys(tool_repairs)
        turns += [Turn("system", prompt)] if prompt else []
    for entry in entries_of(row, repairs):
        role, text = role_and_text(entry)
        if role == "assistant":
            turns.append(_assistant_turn(text, entry.weight, tools))
        elif role == "tool":
            turns += [Turn("tool", response) for response in split_responses(text, pending_calls(turns))]
        else:
            turns.append(Turn(role, text))
    return Conversation(id_of(row), "toolace", messages_of(turns), tools, repairs=tuple(repairs))


def _read_system(system: str) -> tuple[str, Json]:
    """What the prompt says beside the dataset's own sentences, and the declarations."""
    announced = ANNOUNCEMENT.search(system)
    if announced is None:
        return system.strip(), None
    try:
        declarations, end = read_prefix(system, announced.end())
    except ValueError as error:
        detail = f"{error}: {excerpt(system[announced.end() :])}"
        raise Unfaithful(Reason.BAD_TOOLS, detail) from error
    around = f"{system[: announced.start()]}\n{system[end:].lstrip('. ')}"
    return "\n".join(line for part in ENVELOPE.sub("", around).splitlines() if (line := part.strip())), declarations


def _assistant_turn(text: str, weight: float, tools: Sequence[Tool]) -> Turn:
    """Text, calls, or text and then calls. A call that cannot be read must not pass for text."""
    names = sorted((tool.name for tool in tools), key=len, reverse=True)
    brackets = (at for at, character in enumerate(text) if character == "[")
    start = next((at for at in brackets if _call_at(text, at + 1, names)[0]), -1)
    if start < 0:
        if LOOKS_LIKE_CALLS.search(text):
            raise Unfaithful(Reason.UNDECLARED_TOOL, excerpt(text))
        if _call_at(text, 0, names)[0] and text.rstrip().endswith(")"):
            raise Unfaithful(Reason.MALFORMED_CALL, f"a call without brackets: {excerpt(text)}")
        return Turn("assistant", text.strip(), weight=weight)
    said, written = text[:start].strip(), text[start:].strip()
    return Turn("assistant", said, tuple(_read_calls(written, names)), weight=weight)


def _read_calls(text: str, names: Sequence[str]) -> list[Call]:
    """``[name(key=value, ...), ...]`` up to the end of ``text``."""
    calls: list[Call] = []
    position = 1
    while True:
        name, opened = _call_at(text, position, names)
        if not name:
            raise Unfaithful(Reason.UNDECLARED_TOOL, f"no declared name at: {excerpt(text[position:])}")
        arguments, position = _read_arguments(text, opened, name)
        calls.append(Call(name, arguments))
        position = _skip_blank(text, position)
        if text[position : position + 1] == ",":
            position = _skip_blank(text, position + 1)  # Python lets a last comma stand
        elif text[position : position + 1] != "]":
            raise Unfaithful(Reason.MALFORMED_CALL, f"neither comma nor bracket at: {excerpt(text[position:])}")
        if text[position : position + 1] == "]":
            break
    if text[position + 1 :].strip():
        raise Unfaithful(Reason.TEXT_AFTER_CALL, excerpt(text[position + 1 :]))
    return calls


def _call_at(text: str, position: int, names: Sequence[str]) -> tuple[str, int]:
    """The longest declared name at ``position`` with its opening parenthesis, and the position behind that."""
    position = _skip_blank(text, position)
    for name in names:
        if text.startswith(name, position):
            behind = _skip_blank(text, position + len(name))
            if text[behind : behind + 1] == "(":
                return name, behind + 1
    return "", position


def _read_arguments(text: str, position: int, name: str) -> tuple[dict[str, Json], int]:
    """``key=value, ...)``: the arguments, and the position behind the parenthesis."""
    arguments: dict[str, Json] = {}
    while True:
        position = _skip_blank(text, position)
        if text[position : position + 1] == ")":
            return arguments, position + 1
        equals = text.find("=", position)
        key = text[position:equals].strip()
        if equals < 0 or not ARGUMENT_NAME.fullmatch(key) or key in arguments:
            raise Unfaithful(Reason.MALFORMED_CALL, f"{name}: no new argument name at: {excerpt(text[position:])}")
        end = _value_end(text, equals + 1)
        if end == len(text):
            raise Unfaithful(Reason.MALFORMED_CALL, f"{name}: not closed: {excerpt(text[position:])}")
        try:
            arguments[key], _ = read_either(text[equals + 1 : end].strip())
        except ValueError as error:
            detail = f"{name}.{key}: {excerpt(text[equals + 1 : end])}"
            raise Unfaithful(Reason.ARGUMENTS_NOT_JSON, detail) from error
        position = end + (text[end] == ",")


def _value_end(text: str, position: int) -> int:
    """Where the value that starts at ``position`` ends: at a comma or parenthesis outside of quotes and brackets."""
    depth = 0
    while position < len(text):
        character = text[position]
        if character in "'\"":
            quoted = QUOTED.match(text, position)
            if quoted is None:
                return len(text)
            position = quoted.end()
            continue
        if depth == 0 and character in ",)":
            return position
        depth += (character in OPENING) - (character in CLOSING)
        position += 1
    return position


def _skip_blank(text: str, position: int) -> int:
    while text[position : position + 1].isspace():
        position += 1
    return position
