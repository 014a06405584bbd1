"""What every conversation must be before it is written, whatever format it came from."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jsonschema_rs
import msgspec

from seatrial.data.conversation import Conversation, Message, Rejection, Tool, ToolCall
from seatrial.data.reason import Reason, Unfaithful, excerpt
from seatrial.data.schema import FLAT

Json = Any

# An assistant's text with one of these holds a call that nobody read.
CALL_MARKERS = ("<tool_call>", "<functioncall>")


@dataclass(frozen=True)
class _Signature:
    """A compiled parameter schema. ``known`` is None where the schema admits arguments that it does not name."""

    validator: jsonschema_rs.Draft202012Validator
    known: frozenset[str] | None


def well_formed(conversation: Conversation) -> Conversation | Rejection:
    """The conversation, completed by its category and by what its calls prove about its schemas, or why not.

    Tools are declared under unique names with valid schemas (draft 2020-12). Turns are: an optional system
    message, then user and assistant in turn, each call answered by exactly one tool message before anybody
    speaks again, an assistant turn last; only the last turn's calls may stay unanswered. No text holds a call of
    another format. Calls name declared tools and their arguments validate. Four things are mended and recorded: an
    optional null where the schema has no room for one, an integer parameter for which this very conversation passes a
    fraction, a requirement that was inferred from a flat map of parameters and that a call does without, and responses
    to parallel calls in another order than the calls.
    """
    try:
        if FLAT in conversation.repairs:
            conversation = _with_requirements_relaxed(conversation)
        signatures = _signatures(conversation.tools)
        _check_turns(conversation.messages)
        return _check_calls(_with_responses_in_order(conversation), signatures)
    except Unfaithful as error:
        return error.rejection
    except RecursionError:
        return Rejection(Reason.NESTED_TOO_DEEP.value, "arguments are nested deeper than they can be checked")


def accepts(tool: Tool, arguments: dict[str, Json]) -> bool:
    """Whether the arguments validate against the tool's schema and name nothing that it does not declare.

    Raises:
        Unfaithful: BAD_SCHEMA.
    """
    return _is_valid(arguments, _signature(tool))


def category_of(messages: Sequence[Message], tools: Sequence[Tool]) -> str:
    """chat (no tools), no_call, single, multiple (one call, several tools), parallel, or multi_turn."""
    if not tools:
        return "chat"
    calling = [message for message in messages if message.tool_calls]
    if not calling:
        return "no_call"
    if len(calling) > 1:
        return "multi_turn"
    if len(calling[0].tool_calls) > 1:
        return "parallel"
    return "single" if len(tools) == 1 else "multiple"


def _signatures(tools: Sequence[Tool]) -> dict[str, _Signature]:
    signatures: dict[str, _Signature] = {}
    for tool in tools:
        if tool.name in signatures:
            raise Unfaithful(Reason.DUPLICATE_TOOL, tool.name)
        signatures[tool.name] = _signature(tool)
    return signatures


def _signature(tool: Tool) -> _Signature:
    try:
        return _compile(msgspec.json.encode(tool.parameters))
    except (ValueError, TypeError) as error:
        raise Unfaithful(Reason.BAD_SCHEMA, f"{tool.name}: {excerpt(str(error))}") from error


@lru_cache(maxsize=4096)
def _compile(schema_text: bytes) -> _Signature:
    schema = msgspec.json.decode(schema_text)
    validator = jsonschema_rs.Draft202012Validator(schema, retriever=_refuse_remote)
    closed = not schema.keys() & {"patternProperties", "$ref", "anyOf", "oneOf", "allOf"} and not schema.get(
        "additionalProperties"
    )
    return _Signature(validator, frozenset(schema.get("properties", ())) if closed else None)


def _refuse_remote(uri: str) -> Json:
    raise ValueError(f"a schema may not refer to {uri}")


def _check_turns(messages: Sequence[Message]) -> None:
    if not messages:
        raise Unfaithful(Reason.NO_TURNS, "no messages")
    previous = ""
    unanswered: dict[str, None] = {}
    for number, message in enumerate(messages):
        role = message.role
        if role == "tool":
            if message.tool_call_id not in unanswered:
                raise Unfaithful(Reason.RESPONSE_WITHOUT_CALL, f"message {number} answers {message.tool_call_id!r}")
            del unanswered[message.tool_call_id]
        else:
            if unanswered:
                raise Unfaithful(Reason.CALL_WITHOUT_RESPONSE, f"{', '.join(unanswered)} before message {number}")
            if previous not in _MAY_FOLLOW[role]:
                raise Unfaithful(Reason.ROLE_ORDER, f"message {number}: {role} after {previous or 'nothing'}")
            if not message.tool_calls and not message.content.strip():
                raise Unfaithful(Reason.EMPTY_TURN, f"message {number}: {role} says nothing")
            if role == "assistant" and (marker := next((m for m in CALL_MARKERS if m in message.content), None)):
                raise Unfaithful(Reason.STRAY_MARKER, f"message {number}: text holds {marker}: is --source right?")
        if message.tool_calls and role != "assistant":
            raise Unfaithful(Reason.ROLE_ORDER, f"message {number}: {role} holds a call")
        for call in message.tool_calls:
            if not call.id or call.id in unanswered:  # the next turn's calls may have the same ids again
                raise Unfaithful(Reason.CALL_IDS_DO_NOT_PAIR, f"message {number}: call id {call.id!r}")
            unanswered[call.id] = None
        previous = role
    if previous != "assistant":
        raise Unfaithful(Reason.LAST_TURN_NOT_ASSISTANT, f"the last turn is {previous}")


_MAY_FOLLOW = {"system": ("",), "user": ("", "system", "assistant"), "assistant": ("user", "tool")}


def _with_requirements_relaxed(conversation: Conversation) -> Conversation:
    """Flat maps do not say what is required; where a call leaves out what we inferred to be, we inferred wrongly."""
    calls = [call for message in conversation.messages for call in message.tool_calls]
    tools, repairs = [], list(conversation.repairs)
    for tool in conversation.tools:
        given = [call.arguments for call in calls if call.name == tool.name]
        required = tool.parameters.get("required", [])
        proven = [name for name in required if all(name in arguments for arguments in given)]
        if len(proven) < len(required):
            repairs += [f"required_relaxed: {tool.name}.{name}" for name in required if name not in proven]
            tool = msgspec.structs.replace(tool, parameters=tool.parameters | {"required": proven})
        tools.append(tool)
    return msgspec.structs.replace(conversation, tools=tuple(tools), repairs=tuple(repairs))


def _with_responses_in_order(conversation: Conversation) -> Conversation:
    """Each response where its call stands among the parallel ones: most chat templates write nothing else to tell."""
    parallel = [number for number, message in enumerate(conversation.messages) if len(message.tool_calls) > 1]
    messages = list(conversation.messages)
    for number in parallel:
        place = {call.id: position for position, call in enumerate(messages[number].tool_calls)}
        answers = slice(number + 1, number + 1 + len(place))
        messages[answers] = sorted(messages[answers], key=lambda answer: place[answer.tool_call_id])
    if not parallel or tuple(messages) == conversation.messages:
        return conversation
    repairs = (*conversation.repairs, "responses_reordered")
    return msgspec.structs.replace(conversation, messages=tuple(messages), repairs=repairs)


def _check_calls(conversation: Conversation, signatures: dict[str, _Signature]) -> Conversation:
    tools, messages, repairs = conversation.tools, conversation.messages, list(conversation.repairs)
    for number, message in enumerate(messages):
        for position, call in enumerate(message.tool_calls):
            signature = signatures.get(call.name)
            if signature is None:
                raise Unfaithful(Reason.UNDECLARED_TOOL, f"{call.name!r}; declared: {excerpt(', '.join(signatures))}")
            if _is_valid(call.arguments, signature) and not _has_null(call.arguments):
                continue
            call, mended_tool, mended = _mend(call, next(tool for tool in tools if tool.name == call.name))
            signatures[call.name] = _signature(mended_tool)
            tools = tuple(mended_tool if tool.name == call.name else tool for tool in tools)
            messages = _with_call(messages, number, position, call)
            repairs += mended
    return msgspec.structs.replace(
        conversation,
        tools=tools,
        messages=messages,
        repairs=tuple(dict.fromkeys(repairs)),
        category=conversation.category or category_of(messages, tools),
    )


def _is_valid(arguments: dict[str, Json], signature: _Signature) -> bool:
    if signature.known is not None and not signature.known.issuperset(arguments):
        return False
    return signature.validator.is_valid(arguments)


def _mend(call: ToolCall, tool: Tool) -> tuple[ToolCall, Tool, list[str]]:
    """Leave out nulls that the schema does not allow, widen integers that the call disproves, refuse the rest."""
    signature = _signature(tool)
    repairs: dict[str, None] = {}
    arguments = _without_stray_nulls(call.arguments, tool.parameters, call.name, repairs)
    if signature.known is not None and (unknown := sorted(arguments.keys() - signature.known)):
        raise Unfaithful(Reason.UNDECLARED_ARGUMENT, f"{call.name}({excerpt(', '.join(unknown))})")
    parameters = tool.parameters
    for error in signature.validator.iter_errors(arguments):
        if isinstance(error.instance, float):
            widened = _widened(parameters, error.schema_path)
            if widened is not parameters:
                parameters = widened
                repairs[f"int_widened_to_number: {_place(call, error)}"] = None
    tool = msgspec.structs.replace(tool, parameters=parameters)
    for error in _signature(tool).validator.iter_errors(arguments):
        raise Unfaithful(Reason.ARGUMENTS_VIOLATE_SCHEMA, f"{_place(call, error)}: {excerpt(error.message)}")
    return msgspec.structs.replace(call, arguments=arguments), tool, list(repairs)


def _has_null(value: Json) -> bool:
    if isinstance(value, dict):
        return any(_has_null(inner) for inner in value.values())
    return any(_has_null(inner) for inner in value) if isinstance(value, list) else value is None


def _without_stray_nulls(value: Json, schema: Json, place: str, repairs: dict[str, None]) -> Json:
    """``value`` without nulls that Arrow invented or that stand for "not given": optional ones of another type."""
    if not isinstance(schema, dict):
        return value
    if isinstance(value, list):
        return [_without_stray_nulls(item, schema.get("items"), place, repairs) for item in value]
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, dict):
        return value
    kept = {}
    for name, inner in value.items():
        if inner is None and name not in schema.get("required", ()) and not _allows_null(name, schema):
            repairs[f"null_argument_dropped: {place}.{name}"] = None
        else:
            kept[name] = _without_stray_nulls(inner, properties.get(name), f"{place}.{name}", repairs)
    return kept


def _allows_null(name: str, schema: dict[str, Json]) -> bool:
    """Whether the object's schema has room for a null under ``name``, as far as types and enums tell."""
    if name not in schema["properties"]:
        return bool(schema.get("additionalProperties")) or "patternProperties" in schema
    inner = schema["properties"][name]
    if not isinstance(inner, dict):
        return bool(inner)
    kinds = inner.get("type", "null")
    return "null" in ([kinds] if isinstance(kinds, str) else kinds) and None in inner.get("enum", [None])


def _place(call: ToolCall, error: jsonschema_rs.ValidationError) -> str:
    return ".".join([call.name, *(str(part) for part in error.instance_path)])


def _widened(schema: Json, path: Sequence[str | int]) -> Json:
    """A copy of ``schema`` whose ``type`` at ``path`` says number for integer; itself where nothing says so."""
    if not path:
        if isinstance(schema, list) and "integer" in schema:
            return [kind for kind in schema if kind not in ("integer", "number")] + ["number"]
        return "number" if schema == "integer" else schema
    head, *rest = path
    try:
        inner = schema[head]
    except (TypeError, LookupError):  # an embedded schema with its own $id
        return schema
    widened = _widened(inner, rest)
    if widened is inner:
        return schema
    if isinstance(schema, list):
        return [widened if index == head else item for index, item in enumerate(schema)]
    return {key: widened if key == head else item for key, item in schema.items()}


def _with_call(messages: tuple[Message, ...], number: int, position: int, call: ToolCall) -> tuple[Message, ...]:
    calls = messages[number].tool_calls
    message = msgspec.structs.replace(messages[number], tool_calls=(*calls[:position], call, *calls[position + 1 :]))
    return (*messages[:number], message, *messages[number + 1 :])
