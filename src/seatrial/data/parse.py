"""Reading calls out of a model's text, as the server will: one pure function per ``--tool-call-parser`` of vLLM.

The parsers follow the non-streaming semantics of vLLM's parsers of the same name, which
``tests/data/vllm_parser_outputs.json`` records. They differ in one way: where vLLM hands a call that it cannot read
back to the client as plain text, these say that and why, so that a broken call is never taken for an answer in prose.
Text without the marks of a call is an answer in prose, whatever else it holds.
"""

import ast
import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from seatrial.data.conversation import Json, ToolCall


class Fault(StrEnum):
    """Why a call cannot be read."""

    NOT_JSON = "not JSON"
    NOT_PYTHON = "not a list of Python calls"
    NOT_AN_OBJECT = "call is not an object"
    NOT_A_LIST = "calls are not a list"
    NO_NAME = "call without a name"
    NO_ARGUMENTS = "call without arguments"
    ARGUMENTS_NOT_AN_OBJECT = "arguments are not an object"
    ARGUMENT_NOT_A_LITERAL = "argument is not a literal"
    SEVERAL_LISTS = "several lists of calls"


@dataclass(frozen=True)
class Parsed:
    """What a client receives: prose, calls, or both."""

    content: str
    calls: tuple[ToolCall, ...] = ()


@dataclass(frozen=True)
class Malformed:
    """The text tries to call and fails. ``detail`` quotes the place."""

    reason: Fault
    detail: str = ""


def parse(text: str, parser: str) -> Parsed | Malformed:
    """Read ``text``, a model's answer without its stop token. Never raises for what a model wrote.

    Raises:
        KeyError: no parser of that name; ``PARSERS`` lists them.
    """
    try:
        return PARSERS[parser](text)
    except _Unreadable as unreadable:
        return Malformed(unreadable.reason, unreadable.detail)


def same_text(read: str, meant: str) -> bool:
    """Whether a client reads what was meant.

    White space at the ends, which templates trim, and an empty thought before the text, which some write where a model
    is not to think, make no difference.
    """
    return _without_empty_thought(read) == _without_empty_thought(meant)


def _without_empty_thought(content: str) -> str:
    return re.sub(r"^\s*<think>\s*</think>", "", content).strip()


class _Unreadable(Exception):
    def __init__(self, reason: Fault, place: object) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = str(place)[:200]


def _hermes(text: str) -> Parsed:
    """``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``, once per call; the last tag may be left open.

    Prose is what stands before the first tag; what follows a closing tag is lost.
    """
    content, opening, _ = text.partition("<tool_call>")
    if not opening:
        return Parsed(text)
    blocks = re.findall(r"<tool_call>(.*?)(?:</tool_call>|\Z)", text, re.DOTALL)
    return Parsed(content, tuple(_call(_load(block)) for block in blocks))


def _llama3_json(text: str) -> Parsed:
    """JSON objects with ``name`` and ``parameters`` or ``arguments``, anywhere in the text; prose beside them is lost.

    An answer that does not begin with an object is prose unless all its objects are calls.
    """
    calls = []
    try:
        at = text.find("{")
        while at >= 0:
            value, end = _load_first(text, at)
            calls.append(_call(value, "arguments" if "arguments" in value else "parameters"))
            at = text.find("{", end)
    except _Unreadable:
        if text.lstrip().removeprefix("<|python_tag|>").lstrip().startswith("{"):
            raise
        return Parsed(text)
    return Parsed("", tuple(calls)) if calls else Parsed(text)


_XLAM_BLOCKS = (
    re.compile(r"```(?:json)?\s*([\s\S]*?)```"),
    re.compile(r"\[TOOL_CALLS\]([\s\S]*?)(?=\n|\Z)"),
    re.compile(r"<tool_call>([\s\S]*?)</tool_call>"),
)


def _xlam(text: str) -> Parsed:
    """One JSON array of ``{"name": ..., "arguments": {...}}``: bare, in a code block, or between tags of other formats.

    A bare array is the whole answer; prose can only stand beside a block. Entries of the array that have no name or
    no arguments are passed over as long as one has both.
    """
    content, array = _xlam_array(text)
    if array is None:
        return Parsed(content)
    entries = _load(array)
    if not isinstance(entries, list):
        return Parsed(content or text)
    whole = [entry for entry in entries if isinstance(entry, dict) and {"name", "arguments"} <= entry.keys()]
    if entries and not whole:
        raise _Unreadable(Fault.NO_ARGUMENTS, array)
    return Parsed(content, tuple(_call(_with_loaded_arguments(entry)) for entry in whole))


def _xlam_array(text: str) -> tuple[str, str | None]:
    """The prose, and the text of the array if there is one."""
    thought, closing, answer = text.partition("</think>")
    if closing:
        for candidate in (answer.strip(), *_xlam_blocks(answer.strip())):
            if _is_json(candidate):
                return (thought + closing).strip(), candidate
    for pattern in _XLAM_BLOCKS:
        for candidate in pattern.findall(text):
            if _is_json(candidate):
                return pattern.sub("", text).strip(), candidate
    if text.lstrip().startswith("[") and (_is_json(text) or all(part in text for part in ("{", "name", "arguments"))):
        return "", text
    return text, None


def _xlam_blocks(text: str) -> Iterable[str]:
    return (block for pattern in _XLAM_BLOCKS for block in pattern.findall(text))


def _mistral(text: str) -> Parsed:
    """``[TOOL_CALLS]`` and a JSON array (tokenizers v3 to v7), or before each ``name{...}`` (v11 and later)."""
    content, *calls = text.split("[TOOL_CALLS]")
    if not calls:
        return Parsed(text)
    name, brace, _ = calls[0].replace("[ARGS]", "").partition("{")
    if brace and name.strip() and "[" not in name:
        return Parsed(content, tuple(_named_call(call) for call in calls))
    if len(calls) > 1:
        raise _Unreadable(Fault.SEVERAL_LISTS, text)
    array = calls[0].strip()
    try:
        entries, _ = _load_first(array, 0)
    except _Unreadable:
        inner = re.search(r"\[{.*}\]", array, re.DOTALL)
        if inner is None:
            raise
        entries = _load(inner.group())
    if not isinstance(entries, list):
        raise _Unreadable(Fault.NOT_A_LIST, array)
    return Parsed(content, tuple(_call({"arguments": {}, **_object(entry)}) for entry in entries))


def _named_call(text: str) -> ToolCall:
    name, brace, rest = text.partition("{")
    return _call({"name": name.replace("[ARGS]", ""), "arguments": _load(brace + rest)})


def _pythonic(text: str) -> Parsed:
    """``[name(argument=literal, ...), ...]`` and nothing else."""
    if not re.match(r"\[[a-zA-Z]\w*\((?:\s*\)|[a-zA-Z]\w*=)", text):
        return Parsed(text)
    try:
        statements = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _Unreadable(Fault.NOT_PYTHON, error) from error
    listed = statements[0].value if len(statements) == 1 and isinstance(statements[0], ast.Expr) else None
    if not isinstance(listed, ast.List):
        raise _Unreadable(Fault.NOT_PYTHON, text)
    return Parsed("", tuple(_python_call(call) for call in listed.elts))


def _python_call(node: ast.expr) -> ToolCall:
    if not isinstance(node, ast.Call) or node.args or any(keyword.arg is None for keyword in node.keywords):
        raise _Unreadable(Fault.NOT_PYTHON, ast.unparse(node))
    name = ast.unparse(node.func)
    if not re.fullmatch(r"\w+(\.\w+)*", name):
        raise _Unreadable(Fault.NO_NAME, name)
    return ToolCall(name, {str(keyword.arg): _literal(keyword.value) for keyword in node.keywords})


def _literal(node: ast.expr) -> Json:
    """A JSON value from a Python literal; tuples become lists, and ``null``, ``true``, ``false`` are understood."""
    match node:
        case ast.Constant(value=None | bool() | int() | float() | str()):
            return node.value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_literal(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _literal(value) for key, value in zip(keys, values, strict=True)}
        case ast.Name(id="null"):
            return None
        case ast.Name(id="true" | "false"):
            return node.id == "true"
        case ast.UnaryOp(op=ast.USub() | ast.UAdd(), operand=ast.Constant(value=int() | float() as number)):
            return -number if isinstance(node.op, ast.USub) else number
    raise _Unreadable(Fault.ARGUMENT_NOT_A_LITERAL, ast.unparse(node))


def _key(node: ast.expr | None) -> str:
    match node:
        case ast.Constant(value=str() as key):
            return key
        case ast.Constant(value=None | bool() | int() | float() as key):
            return json.dumps(key)
    raise _Unreadable(Fault.ARGUMENT_NOT_A_LITERAL, ast.unparse(node) if node else "**")


PARSERS: dict[str, Callable[[str], Parsed]] = {
    "hermes": _hermes,
    "llama3_json": _llama3_json,
    "mistral": _mistral,
    "none": Parsed,
    "pythonic": _pythonic,
    "xlam": _xlam,
}
"""By the names vLLM gives them; 'none' takes all text for prose, as a server without a parser does."""


def _call(value: Json, arguments_key: str = "arguments") -> ToolCall:
    entry = _object(value)
    if not isinstance(entry.get("name"), str):
        raise _Unreadable(Fault.NO_NAME, entry)
    if arguments_key not in entry:
        raise _Unreadable(Fault.NO_ARGUMENTS, entry)
    arguments = entry[arguments_key]
    if not isinstance(arguments, dict):
        raise _Unreadable(Fault.ARGUMENTS_NOT_AN_OBJECT, entry)
    return ToolCall(entry["name"], arguments)


def _object(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise _Unreadable(Fault.NOT_AN_OBJECT, value)
    return value


def _with_loaded_arguments(entry: dict[str, Json]) -> dict[str, Json]:
    """Arguments given as JSON text reach the client as that text, so they are read as it will read them."""
    arguments = entry["arguments"]
    return {**entry, "arguments": _load(arguments)} if isinstance(arguments, str) else entry


def _load(text: str) -> Json:
    value, end = _load_first(text, len(text) - len(text.lstrip()))
    if text[end:].strip():
        raise _Unreadable(Fault.NOT_JSON, text)
    return value


def _load_first(text: str, at: int) -> tuple[Json, int]:
    """The JSON value that begins at ``at``, and where it ends."""
    try:
        value, end = _DECODER.raw_decode(text, at)
        if "\\u" in text:  # an escaped half of a surrogate pair is no character: nothing could write it down again
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:
        raise _Unreadable(Fault.NOT_JSON, text[at:]) from error
    return value, end


def _is_json(text: str) -> bool:
    try:
        _load(text)
    except _Unreadable:
        return False
    return True


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
