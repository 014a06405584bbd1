"""Tool declarations of every known dialect, normalised to JSON Schema draft 2020-12.

``NORMALISER_VERSION`` goes into every manifest: records that different versions made may differ. Every departure from
the row's own text is returned as a repair: a short name, and the place where it changes a meaning.

Normalised tools are shared between the rows that declare them in the same words: never modify one in place.
"""

from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec

from seatrial.data.conversation import Tool
from seatrial.data.notation import read_either
from seatrial.data.reason import Reason, Unfaithful, excerpt
from seatrial.data.typenames import TYPE_NAMES, is_optional, parse_type, union

NORMALISER_VERSION = 1

Json = Any
Schema = dict[str, Json]
Repairs = dict[str, None]  # an ordered set

NAMED_SCHEMAS = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
LISTED_SCHEMAS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
INNER_SCHEMAS = frozenset({"additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"})
TOOL_KEYS = frozenset({"name", "description", "parameters", "required", "strict", "type"})
# What other dialects call the parameters: some of ToolACE's prompts, and tools in Anthropic's and MCP's form.
PARAMETERS_ALIASES = ("arguments", "input_schema", "inputSchema")
FLAT = "flat_parameters"
"""The repair that says that ``required`` was inferred."""


class _Normal(msgspec.Struct, forbid_unknown_fields=True):
    """The schemas that certainly need no mending, which are most: told by one fast conversion to this type."""

    type: Literal["string", "integer", "number", "boolean", "array", "object", "null"]
    description: str = ""
    enum: Annotated[list[Json], msgspec.Meta(min_length=1)] | msgspec.UnsetType = msgspec.UNSET
    format: str = ""
    items: "_Normal | msgspec.UnsetType" = msgspec.UNSET
    properties: "dict[str, _Normal]" = {}
    required: list[str] = []

    def __post_init__(self) -> None:
        names = set(self.required)
        if len(names) < len(self.required) or not self.properties.keys() >= names:
            raise ValueError("required names are undeclared or repeated")


def normalise_tools(raw: Json) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """Tools and repairs from a list of declarations, OpenAI's wrapped form or the bare one, or from its text.

    Raises:
        Unfaithful: BAD_TOOLS or BAD_SCHEMA, with the tool and the place.
    """
    if raw is None:
        return (), ()
    if isinstance(raw, str):
        return _normalise_text(raw)
    try:
        return _normalise_text(msgspec.json.encode(raw).decode())
    except (TypeError, ValueError, OverflowError) as error:
        raise Unfaithful(Reason.BAD_TOOLS, f"not JSON values: {error}") from error


@lru_cache(maxsize=1024)
def _normalise_text(text: str) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    repairs: Repairs = {}
    value = _read(text, repairs)
    if isinstance(value, str):
        repairs["tools_encoded_twice"] = None
        value = _read(value, repairs)
    if value is None:
        return (), tuple(repairs)
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        raise Unfaithful(Reason.BAD_TOOLS, f"tools are {type(value).__name__}, not a list: {excerpt(text)}")
    tools, more = normalise_declarations([_read(each, repairs) if isinstance(each, str) else each for each in value])
    return tools, (*repairs, *more)


def normalise_declarations(declarations: list[Json]) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """Like :func:`normalise_tools` for declarations that are objects already, and without remembering them."""
    repairs: Repairs = {}
    tools: list[Tool] = []
    for declaration in declarations:
        tool = _normalise_tool(declaration, repairs)
        if tool in tools:
            repairs[f"identical_tool_dropped: {tool.name}"] = None
        else:
            tools.append(tool)
    return tuple(tools), tuple(repairs)


def _read(text: str, repairs: Repairs) -> Json:
    if not text.strip():
        return None
    try:
        value, is_python = read_either(text)
    except ValueError as error:
        raise Unfaithful(Reason.BAD_TOOLS, f"{error}: {excerpt(text)}") from error
    if is_python:
        repairs["python_literal_tools"] = None
    return value


def _normalise_tool(raw: Json, repairs: Repairs) -> Tool:
    if isinstance(raw, dict) and isinstance(raw.get("function"), dict):
        raw = raw["function"]
    if not isinstance(raw, dict):
        raise Unfaithful(Reason.BAD_TOOLS, f"a tool is {type(raw).__name__}, not an object: {excerpt(raw)}")
    name, description = raw.get("name"), raw.get("description")
    if not isinstance(name, str) or not name.strip():
        raise Unfaithful(Reason.BAD_TOOLS, f"a tool has no name: {excerpt(raw)}")
    if description is not None and not isinstance(description, str):
        raise Unfaithful(Reason.BAD_TOOLS, f"{name}: description is {type(description).__name__}, not text")
    if "parameters" not in raw and (alias := next((key for key in PARAMETERS_ALIASES if key in raw), None)):
        repairs["parameters_renamed"] = None
        raw = {"parameters" if key == alias else key: value for key, value in raw.items()}
    if not raw.keys() <= TOOL_KEYS:
        dropped = [key for key in raw if key not in TOOL_KEYS and raw[key] is not None]
        repairs |= dict.fromkeys(f"tool_field_dropped: {name}.{key}" for key in dropped)
    parameters = _normalise_parameters(raw.get("parameters"), name, repairs)
    if raw.get("required") and "required" not in parameters:
        repairs[f"required_moved_inward: {name}"] = None
        parameters = parameters | _required(raw["required"], parameters["properties"], name, repairs)
    return Tool(name, description or "", parameters)


def _normalise_parameters(raw: Json, tool: str, repairs: Repairs) -> Schema:
    if isinstance(raw, dict) and "properties" in raw and _is_normal(raw) and raw["type"] == "object":
        return raw
    if isinstance(raw, str):  # encoded by itself, as Arrow would otherwise merge it with the schemas of other rows
        raw = _read(raw, repairs)
    if raw is None or raw == {} or raw == []:
        return {"type": "object", "properties": {}}
    if not isinstance(raw, dict):
        raise Unfaithful(Reason.BAD_SCHEMA, f"{tool}: parameters are {type(raw).__name__}, not an object")
    if _is_flat(raw):
        repairs[FLAT] = None
        raw = {"type": "object", "properties": raw, "required": [n for n, s in raw.items() if _is_flat_required(s)]}
    schema = normalise_schema(raw, tool, repairs)
    if schema.setdefault("type", "object") != "object":
        raise Unfaithful(Reason.BAD_SCHEMA, f"{tool}: parameters are of type {schema['type']}, not object")
    schema.setdefault("properties", {})
    return schema


def _is_flat(raw: Schema) -> bool:
    """A map such as xLAM's: no ``type`` and ``properties`` of its own, each value describes a parameter."""
    if isinstance(raw.get("type"), (str, list)) or "$ref" in raw:
        return False
    properties = raw.get("properties")
    if isinstance(properties, dict) and all(isinstance(spec, (dict, bool)) for spec in properties.values()):
        return False
    return all(isinstance(spec, (dict, str)) for spec in raw.values())


def _is_flat_required(spec: Json) -> bool:
    """A flat parameter is required unless its type says optional or it has a default."""
    if isinstance(spec, str):
        return not is_optional(spec)
    kind = spec.get("type")
    return "default" not in spec and not (isinstance(kind, str) and is_optional(kind))


def normalise_schema(raw: Json, place: str, repairs: Repairs) -> Schema:
    """One schema, recursively; ``place`` is the dotted path for messages. Adds to ``repairs``.

    Raises:
        Unfaithful: BAD_SCHEMA.
    """
    if isinstance(raw, str):
        return _of_type_text(raw, place, repairs)
    if not isinstance(raw, dict):
        raise Unfaithful(Reason.BAD_SCHEMA, f"{place}: a schema is {type(raw).__name__}, not an object")
    if _is_normal(raw):
        return raw
    schema: Schema = {}
    for key, value in raw.items():
        if value is None and key not in ("const", "default"):
            repairs["null_dropped"] = None
        elif key == "type":
            schema.update(_of_type(value, place, repairs))
        elif key in NAMED_SCHEMAS:
            schema[key] = _named_schemas(value, place, repairs)
        elif key in LISTED_SCHEMAS or (key == "items" and isinstance(value, list)):
            if key == "items":  # how drafts before 2020-12 wrote a tuple
                repairs["tuple_items"] = None
            schema["prefixItems" if key == "items" else key] = _listed_schemas(value, f"{place}.{key}", repairs)
        elif key == "items" or key in INNER_SCHEMAS:
            schema[key] = _inner_schema(value, f"{place}.{key}", repairs)
        elif key not in ("required", "optional", "nullable"):
            schema[key] = value
    _mend_dialects(schema, raw, place, repairs)
    if "default" in schema:
        _mend_default(schema, place, repairs)
    if "properties" in schema:
        schema.update(_collect_required(schema["properties"], raw, place, repairs))
    return schema


def _is_normal(schema: Json) -> bool:
    try:
        msgspec.convert(schema, _Normal)
    except msgspec.ValidationError:
        return False
    return True


def _inner_schema(value: Json, place: str, repairs: Repairs) -> Schema | bool:
    return value if isinstance(value, bool) else normalise_schema(value, place, repairs)


def _listed_schemas(value: Json, place: str, repairs: Repairs) -> list[Schema | bool]:
    if not isinstance(value, list):
        raise Unfaithful(Reason.BAD_SCHEMA, f"{place}: {type(value).__name__}, not a list of schemas")
    return [_inner_schema(item, place, repairs) for item in value]


def _named_schemas(value: Json, place: str, repairs: Repairs) -> Schema:
    if not isinstance(value, dict):
        raise Unfaithful(Reason.BAD_SCHEMA, f"{place}: properties are {type(value).__name__}, not an object")
    schemas: Schema = {}
    for name, spec in value.items():
        if spec is None:  # Arrow gives every struct the keys of all others
            repairs["null_dropped"] = None
        elif not _is_misplaced_required(name, spec):
            schemas[name] = _inner_schema(spec, f"{place}.{name}", repairs)
    return schemas


def _is_misplaced_required(name: str, spec: Json) -> bool:
    return name == "required" and isinstance(spec, list)


def _of_type(value: Json, place: str, repairs: Repairs) -> Schema:
    if isinstance(value, str):
        return _of_type_text(value, place, repairs)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return union([_of_type_text(item, place, repairs) for item in value])
    if isinstance(value, dict):
        return normalise_schema(value, place, repairs)
    raise Unfaithful(Reason.BAD_SCHEMA, f"{place}: type is {excerpt(value)}")


def _of_type_text(text: str, place: str, repairs: Repairs) -> Schema:
    if text in TYPE_NAMES:
        return {"type": text}
    schema = parse_type(text)
    if schema is None:
        repairs[f"unknown_type_dropped: {place} ({excerpt(text, 40)})"] = None
        return {}
    repairs["python_types"] = None
    return dict(schema)


def _mend_dialects(schema: Schema, raw: Schema, place: str, repairs: Repairs) -> None:
    """Draft 4 flags beside a bound, OpenAPI's ``nullable``, and an enum that admits nothing."""
    for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(flag := schema.get(exclusive), bool):
            del schema[exclusive]
            if flag and inclusive in schema:
                schema[exclusive] = schema.pop(inclusive)
            repairs["draft4_bounds"] = None
    if raw.get("nullable") is True and isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
        repairs["openapi_nullable"] = None
    if schema.get("enum") == []:
        del schema["enum"]
        repairs[f"empty_enum_dropped: {place}"] = None


def _mend_default(schema: Schema, place: str, repairs: Repairs) -> None:
    """Coerce a default to the declared type, widen the type it disproves, or drop it when that would be guessing."""
    kind, default = schema.get("type"), schema["default"]
    if default is None:
        del schema["default"]
        repairs["null_dropped"] = None
        return
    if not isinstance(kind, str) or _is_of_type(default, kind):
        return
    coerced = _coerce(default, kind)
    if coerced is not None:
        schema["default"] = coerced
        repairs["default_coerced"] = None
    elif kind == "integer" and (fraction := _coerce(default, "number")) is not None:
        schema |= {"type": "number", "default": fraction}
        repairs[f"int_widened_to_number: {place}"] = None
    else:
        del schema["default"]
        repairs[f"default_dropped: {place} ({excerpt(default, 40)!r} is no {kind})"] = None


def _is_of_type(value: Json, kind: str) -> bool:
    match kind:
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case _:
            return value is None


def _coerce(value: Json, kind: str) -> Json:
    """``value`` as ``kind``, None when it does not spell one."""
    if _is_of_type(value, kind):
        return value
    if kind == "string":
        return str(value) if isinstance(value, (int, float)) else None
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind == "boolean" and value in (0, 1):
        return bool(value)
    if not isinstance(value, str):
        return None
    if kind == "boolean":
        return {"true": True, "false": False}.get(value.strip().lower())
    try:
        return _coerce(spelt, kind) if not isinstance(spelt := read_either(value)[0], str) else None
    except (ValueError, RecursionError):
        return None


def _collect_required(properties: Schema, raw: Schema, place: str, repairs: Repairs) -> Schema:
    """``{"required": [...]}``, or nothing, out of the object's own list and the flags on its properties."""
    required = dict.fromkeys(_required(raw.get("required"), properties, place, repairs).get("required", ()))
    for name, spec in raw["properties"].items():
        if _is_misplaced_required(name, spec):
            repairs[f"required_moved_outward: {place}"] = None
            required |= dict.fromkeys(item for item in spec if isinstance(item, str) and item in properties)
        elif (flag := _required_flag(spec)) is not None:
            repairs["required_flag"] = None
            if flag:
                required[name] = None
            else:
                required.pop(name, None)
    return {"required": list(required)} if required else {}


def _required_flag(spec: Json) -> bool | None:
    """What a property says about itself, when it does: ``required`` or ``optional`` beside its type."""
    if not isinstance(spec, dict):
        return None
    if spec.get("optional") is True:
        return False
    flag = spec.get("required")
    return flag if isinstance(flag, bool) else {"true": True, "false": False}.get(str(flag).lower())


def _required(raw: Json, properties: Schema, place: str, repairs: Repairs) -> Schema:
    """``{"required": [...]}``, or nothing, with the declared names that ``raw`` means in any of its broken forms."""
    match raw:
        case None | False:
            names: list[Json] = []
        case list():
            names = raw
        case True:
            names = list(properties)
            repairs["required_flag"] = None
        case str():
            names = [name for part in raw.split(",") if (name := part.strip(" \"'[]"))]
            repairs["required_text"] = None
        case dict():
            names = [name for name, flag in raw.items() if flag is True]
            repairs["required_map"] = None
        case _:
            raise Unfaithful(Reason.BAD_SCHEMA, f"{place}: required is {excerpt(raw)}")
    declared = dict.fromkeys(name for name in names if isinstance(name, str) and name in properties)
    for name in names:
        if not isinstance(name, str) or name not in declared:
            repairs[f"required_undeclared_dropped: {place}.{excerpt(name, 40)}"] = None
    return {"required": list(declared)} if declared else {}
