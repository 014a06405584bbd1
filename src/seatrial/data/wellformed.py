"""What every conversation must be before it is written, whatever format it came from."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jsonschema_rs
import msgspec

from seatrial.data.conversation import Conversation, Message, Rejection, Tool, ToolCall
from seatrial.data.reason import Reason, Unfaithful, excerpt

Json = Any


@dataclass(frozen=True)
class _Signature:
    """A compiled parameter schema. ``known`` is None where the schema admits arguments that it does not name."""

    validator: jsonschema_rs.Draft202012Validator
    known: frozenset[str] | None


def well_formed(conversation: Conversation) -> Conversation | Rejection:
    """The conversation, completed by its category and by what its calls prove about its schemas, or why not.

    Tools are declared under unique names with valid schemas (draft 2020-12). Turns are: an optional system
    message, then user and assistant in turn, each call answered by exactly one tool message before anybody
    speaks again, an assistant turn last; only the last turn's calls may stay unanswered. Calls name declared
    tools and their arguments validate. Two things are mended and recorded: a null argument where the schema
    allows none, and an integer parameter for which this very conversation passes a fraction.
    """
    try:
        signatures = _signatures(conversation.tools)
        _check_turns(conversation.messages)
        return _check_calls(conversation, signatures)
    except Unfaithful as error:
        return error.rejection


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


@lru_cache(maxsize=16384)
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
    seen: set[str] = set()
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
        for call in message.tool_calls:
            if role != "assistant" or not call.id or call.id in seen:
                raise Unfaithful(Reason.CALL_IDS_DO_NOT_PAIR, f"message {number}: call id {call.id!r}")
            seen.add(call.id)
            unanswered[call.id] = None
        previous = role
    if previous != "assistant":
        raise Unfaithful(Reason.LAST_TURN_NOT_ASSISTANT, f"the last turn is {previous}")


_MAY_FOLLOW = {"system": ("",), "user": ("", "system", "assistant"), "assistant": ("user", "tool")}


def _check_calls(conversation: Conversation, signatures: dict[str, _Signature]) -> Conversation:
    tools, messages, repairs = conversation.tools, conversation.messages, list(conversation.repairs)
    for number, message in enumerate(messages):
        for position, call in enumerate(message.tool_calls):
            signature = signatures.get(call.name)
            if signature is None:
                raise Unfaithful(Reason.UNDECLARED_TOOL, f"{call.name!r}; declared: {excerpt(', '.join(signatures))}")
            if _is_valid(call.arguments, signature):
                continue
            call, tool, mended = _mend(call, next(tool for tool in tools if tool.name == call.name))
            signatures[call.name] = _signature(tool)
            tools = tuple(tool if tool.name == call.name else other for other in tools)
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
    """Leave out null arguments that the schema does not allow, widen integers that the call contradicts."""
    signature = _signature(tool)
    repairs: list[str] = []
    arguments = dict(call.arguments)
    required = tool.parameters.get("required", ())
    for name in [name for name, value in arguments.items() if value is None and name not in required]:
        declared = tool.parameters.get("properties", {}).get(name)
        if (declared is None and signature.known is not None) or (
            isinstance(declared, dict) and not _allows_null(declared)
        ):
            del arguments[name]
            repairs.append(f"null_argument_dropped: {call.name}.{name}")
    call = msgspec.structs.replace(call, arguments=arguments)
    if signature.known is not None and (unknown := sorted(arguments.keys() - signature.known)):
        raise Unfaithful(Reason.UNDECLARED_ARGUMENT, f"{call.name}({excerpt(', '.join(unknown))})")
    parameters = tool.parameters
    for error in signature.validator.iter_errors(arguments):
        path = list(error.schema_path)
        if path[-1:] != ["type"] or not isinstance(error.instance, float):
            continue
        parameters = _widened(parameters, path)
        if parameters is not tool.parameters:
            place = ".".join(str(part) for part in error.instance_path)
            repairs.append(f"int_widened_to_number: {call.name}.{place}")
    tool = msgspec.structs.replace(tool, parameters=parameters)
    if error := next(_signature(tool).validator.iter_errors(arguments), None):
        place = ".".join([call.name, *(str(part) for part in error.instance_path)])
        raise Unfaithful(Reason.ARGUMENTS_VIOLATE_SCHEMA, f"{place}: {excerpt(error.message)}")
    return call, tool, repairs


def _allows_null(schema: Json) -> bool:
    return jsonschema_rs.Draft202012Validator(schema, retriever=_refuse_remote).is_valid(None)


def _widened(schema: Json, path: Sequence[str | int]) -> Json:
    """A copy of ``schema`` in which the ``type`` at ``path`` says number instead of integer."""
    if not path:
        match schema:
            case "integer":
                return "number"
            case list() if "integer" in schema:
                return ["number" if kind == "integer" else kind for kind in schema if kind != "number"]
            case _:
                return schema
    head, *rest = path
    inner = schema[head]
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
