"""Tool declarations of every known dialect, normalised to JSON Schema draft 2020-12.

``NORMALISER_VERSION`` goes into every manifest: records made by different versions may differ. Each departure from
the row's own text is reported as a repair, a short name with its place where it changes a meaning.
"""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from seatrial.data.conversation import Tool
from seatrial.data.notation import read_either
from seatrial.data.reason import Reason, Unfaithful, excerpt

NORMALISER_VERSION = 1

Json = Any
Schema = dict[str, Json]

TYPE_NAMES: Mapping[str, tuple[str, ...]] = {
    "string": ("str", "text", "char"),
    "integer": ("int", "long"),
    "number": ("float", "double", "decimal"),
    "boolean": ("bool",),
    "array": ("list", "tuple", "sequence", "iterable", "ndarray"),
    "object": ("dict", "mapping", "map"),
    "null": ("none", "nonetype"),
}
TYPE_ALIASES: Mapping[str, Schema] = {
    **{name: {"type": kind} for kind, names in TYPE_NAMES.items() for name in (kind, *names)},
    "any": {},
    "set": {"type": "array", "uniqueItems": True},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time"},
    "datetime": {"type": "string", "format": "date-time"},
}
SCHEMA_MAPS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
SCHEMA_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
SCHEMA_VALUES = ("additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
TOOL_KEYS = frozenset({"name", "description", "parameters", "required", "strict", "type"})


@dataclass
class _Repairs:
    """What was mended, in order, each once."""

    seen: dict[str, None] = field(default_factory=dict)

    def add(self, kind: str, place: str = "") -> None:
        self.seen[f"{kind}: {place}" if place else kind] = None


def normalise_tools(raw: Json) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    """Tools and repairs from a list of declarations (OpenAI's wrapped form or the bare one), or from its text.

    Raises:
        Unfaithful: BAD_TOOLS or BAD_SCHEMA, with the tool and the place.
    """
    if raw is None:
        return (), ()
    if isinstance(raw, str):
        return _normalise_text(raw)
    try:
        return _normalise_text(msgspec.json.encode(raw).decode())
    except (TypeError, ValueError) as error:
        raise Unfaithful(Reason.BAD_TOOLS, f"not JSON values: {excerpt(error)}") from error


@lru_cache(maxsize=8192)
def _normalise_text(text: str) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    if not text.strip():
        return (), ()
    repairs = _Repairs()
    value = _parse(text, repairs)
    if isinstance(value, str):  # encoded twice
        value = _parse(value, repairs) if value.strip() else None
        repairs.add("tools_encoded_twice")
    if value is None:
        return (), tuple(repairs.seen)
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        raise Unfaithful(Reason.BAD_TOOLS, f"tools are {type(value).__name__}, not a list: {excerpt(text)}")
    tools = tuple(_normalise_tool(_parse(e, repairs) if isinstance(e, str) else e, repairs) for e in value)
    return tools, tuple(repairs.seen)


def _parse(text: str, repairs: _Repairs) -> Json:
    try:
        value, python = read_either(text)
    except ValueError as error:
        raise Unfaithful(Reason.BAD_TOOLS, f"{error}: {excerpt(text)}") from error
    if python:
        repairs.add("python_literal_tools")
    return value


def _normalise_tool(raw: Json, repairs: _Repairs) -> Tool:
    if isinstance(raw, dict) and isinstance(raw.get("function"), dict):
        raw = raw["function"]
    if not isinstance(raw, dict):
        raise Unfaithful(Reason.BAD_TOOLS, f"a tool is {type(raw).__name__}, not an object: {excerpt(raw)}")
    name = raw.get("name")
    if not isinstance(name, str) or not name.strip():
        raise Unfaithful(Reason.BAD_TOOLS, f"a tool has no name: {excerpt(raw)}")
    description = raw.get("description")
    if description is not None and not isinstance(description, str):
        raise Unfaithful(Reason.BAD_TOOLS, f"{name}: description is {type(description).__name__}, not text")
    for key in raw.keys() - TOOL_KEYS:
        if raw[key] is not None:
            repairs.add("tool_field_dropped", f"{name}.{key}")
    parameters = _normalise_parameters(raw.get("parameters"), name, repairs)
    if raw.get("required") and not parameters.get("required"):
        _set_required(parameters, raw["required"], name, repairs)
        repairs.add("required_moved_inward", name)
    return Tool(name, description or "", parameters)


def _normalise_parameters(raw: Json, tool: str, repairs: _Repairs) -> Schema:
    if raw is None or raw == {} or raw == []:
        return {"type": "object", "properties": {}}
    if not isinstance(raw, dict):
        raise Unfaithful(Reason.BAD_SCHEMA, f"{tool}: parameters are {type(raw).__name__}, not an object")
    if _is_flat(raw):
        repairs.add("flat_parameters")
        raw = {"type": "object", "properties": raw, "required": _flat_required(raw)}
    schema = _normalise_schema(raw, tool, repairs)
    if schema.setdefault("type", "object") != "object":
        raise Unfaithful(Reason.BAD_SCHEMA, f"{tool}: parameters are of type {schema['type']}, not object")
    schema.setdefault("properties", {})
    return schema


def _is_flat(raw: Schema) -> bool:
    """A property map such as xLAM's: no ``type`` and ``properties`` of its own, each value describes a parameter."""
    if isinstance(raw.get("type"), (str, list)) or "$ref" in raw:
        return False
    properties = raw.get("properties")
    if isinstance(properties, dict) and all(isinstance(value, (dict, bool)) for value in properties.values()):
        return False
    return all(isinstance(value, (dict, str)) for value in raw.values())


def _flat_required(properties: Schema) -> list[str]:
    """A flat parameter is required unless its type says optional or it has a default."""
    return [
        name
        for name, spec in properties.items()
        if not (isinstance(spec, dict) and ("default" in spec or spec.get("required") is False))
        and not _is_optional(spec.get("type") if isinstance(spec, dict) else spec)
    ]


def _is_optional(type_text: Json) -> bool:
    return isinstance(type_text, str) and "optional" in type_text.lower()


def _normalise_schema(raw: Json, place: str, repairs: _Repairs) -> Schema:
    if isinstance(raw, str):
        return _type_schema(raw, place, repairs)
    if not isinstance(raw, dict):
        raise Unfaithful(Reason.BAD_SCHEMA, f"{place}: a schema is {type(raw).__name__}, not an object")
    schema: Schema = {}
    for key, value in raw.items():
        if value is None and key not in ("const", "default"):
            repairs.add("null_dropped")
        elif key == "type":
            schema.update(_types(value, place, repairs))
        elif key in SCHEMA_MAPS:
            schema[key] = _normalise_map(value, f"{place}.{key}" if key != "properties" else place, repairs)
        elif key in SCHEMA_LISTS:
            if not isinstance(value, list):
                raise Unfaithful(Reason.BAD_SCHEMA, f"{place}: {key} is {type(value).__name__}, not a list")
            schema[key] = [_subschema(item, f"{place}.{key}", repairs) for item in value]
        elif key in SCHEMA_VALUES:
            schema[key] = _subschema(value, f"{place}.{key}", repairs)
        elif key == "items":
            _set_items(schema, value, place, repairs)
        elif key not in ("required", "optional", "nullable"):
            schema[key] = value
    _mend_bounds(schema, repairs)
    _mend_nullable(schema, raw, repairs)
    _mend_enum(schema, place, repairs)
    _mend_default(schema, place, repairs)
    if "properties" in schema:
        _collect_required(schema, raw, place, repairs)
    return schema


def _subschema(value: Json, place: str, repairs: _Repairs) -> Schema | bool:
    return value if isinstance(value, bool) else _normalise_schema(value, place, repairs)


def _normalise_map(value: Json, place: str, repairs: _Repairs) -> Schema:
    if not isinstance(value, dict):
        raise Unfaithful(Reason.BAD_SCHEMA, f"{place}: properties are {type(value).__name__}, not an object")
    normal: Schema = {}
    for name, spec in value.items():
        if spec is None:
            repairs.add("null_dropped")
        elif not (name == "required" and isinstance(spec, list)):  # a list put one level too deep
            normal[name] = _subschema(spec, f"{place}.{name}", repairs)
    return normal


def _set_items(schema: Schema, value: Json, place: str, repairs: _Repairs) -> None:
    if isinstance(value, list):  # how drafts before 2020-12 wrote a tuple
        repairs.add("tuple_items")
        schema["prefixItems"] = [_subschema(item, f"{place}.items", repairs) for item in value]
    else:
        schema["items"] = _subschema(value, f"{place}.items", repairs)


def _types(value: Json, place: str, repairs: _Repairs) -> Schema:
    if isinstance(value, str):
        return _type_schema(value, place, repairs)
    if isinstance(value, list) and all(isinstance(item, str) for item in value):
        return _union([_type_schema(item, place, repairs) for item in value])
    if isinstance(value, dict):
        return _normalise_schema(value, place, repairs)
    raise Unfaithful(Reason.BAD_SCHEMA, f"{place}: type is {excerpt(value)}")


def _type_schema(text: str, place: str, repairs: _Repairs) -> Schema:
    if text in TYPE_NAMES:
        return {"type": text}
    schema = _parse_type(text)
    if schema is None:
        repairs.add("unknown_type_dropped", f"{place} ({excerpt(text, 40)})")
        return {}
    repairs.add("python_types")
    return dict(schema)


@lru_cache(maxsize=4096)
def _parse_type(text: str) -> Schema | None:
    """Schema of a Python type expression such as ``List[Union[int, float]], optional``; None when it is none."""
    bare = text.split(", optional")[0].replace("(optional)", "").removeprefix("optional ").strip()
    try:
        return _type_of(ast.parse(bare, mode="eval").body)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def _type_of(node: ast.expr) -> Schema:
    """Raises ValueError for what is no type."""
    match node:
        case ast.Constant(value=None):
            return {"type": "null"}
        case ast.Constant(value=str(name)):
            return _type_of(ast.parse(name, mode="eval").body)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return dict(_named_type(name))
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _union([_type_of(left), _type_of(right)])
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            return _generic_type(name.lower(), inner.elts if isinstance(inner, ast.Tuple) else [inner])
        case ast.Tuple(elts=[first, ast.Name(id="optional" | "Optional")]):
            return _type_of(first)
        case _:
            raise ValueError("not a type")


def _named_type(name: str) -> Schema:
    schema = TYPE_ALIASES.get(name.lower())
    if schema is None:
        raise ValueError(f"unknown type {name}")
    return schema


def _generic_type(name: str, inner: list[ast.expr]) -> Schema:
    match name:
        case "optional":
            return _union([_type_of(inner[0]), {"type": "null"}])
        case "union":
            return _union([_type_of(item) for item in inner])
        case "literal":
            return {"enum": [ast.literal_eval(item) for item in inner]}
        case "tuple" if len(inner) == 2 and isinstance(inner[1], ast.Constant) and inner[1].value is ...:
            return {"type": "array", "items": _type_of(inner[0])}
        case "tuple":
            items = [_type_of(item) for item in inner]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        case "dict" | "mapping":
            return {"type": "object", "additionalProperties": _type_of(inner[-1])}
        case _:
            schema = dict(_named_type(name))
            if schema.get("type") == "array":
                schema["items"] = _type_of(inner[0])
            return schema


def _union(members: list[Schema]) -> Schema:
    if any(not member for member in members):
        return {}
    if not all(set(member) == {"type"} and isinstance(member["type"], str) for member in members):
        return members[0] if len(members) == 1 else {"anyOf": members}
    names = list(dict.fromkeys(member["type"] for member in members))
    if "number" in names and "integer" in names:
        names.remove("integer")
    return {"type": names[0] if len(names) == 1 else names}


def _mend_bounds(schema: Schema, repairs: _Repairs) -> None:
    """Draft 4 wrote exclusive bounds as flags beside the inclusive ones."""
    for exclusive, inclusive in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(flag := schema.get(exclusive), bool):
            del schema[exclusive]
            if flag and inclusive in schema:
                schema[exclusive] = schema.pop(inclusive)
            repairs.add("draft4_bounds")


def _mend_nullable(schema: Schema, raw: Schema, repairs: _Repairs) -> None:
    """OpenAPI writes ``nullable`` where JSON Schema adds a type."""
    if raw.get("nullable") is True and isinstance(schema.get("type"), str):
        schema["type"] = [schema["type"], "null"]
        repairs.add("openapi_nullable")


def _mend_enum(schema: Schema, place: str, repairs: _Repairs) -> None:
    if schema.get("enum") == []:
        del schema["enum"]
        repairs.add("empty_enum_dropped", place)


def _mend_default(schema: Schema, place: str, repairs: _Repairs) -> None:
    """Coerce a default to the declared type, or drop it where that cannot be done without guessing."""
    kind = schema.get("type")
    if "default" not in schema or not isinstance(kind, str):
        if schema.get("default", ...) is None:
            del schema["default"]
        return
    default = schema["default"]
    if _is_of_type(default, kind):
        return
    coerced = _coerce(default, kind)
    if coerced is None:
        del schema["default"]
        repairs.add("default_dropped", f"{place} ({excerpt(default, 40)} is no {kind})")
    else:
        schema["default"] = coerced
        repairs.add("default_coerced")


def _is_of_type(value: Json, kind: str) -> bool:
    match kind:
        case "string":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case "null":
            return value is None
        case _:
            return True


def _coerce(value: Json, kind: str) -> Json:
    """``value`` as ``kind``, None when it does not spell one."""
    if kind == "string":
        return None if value is None or isinstance(value, (dict, list)) else str(value)
    if kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    if kind == "boolean" and value in (0, 1):
        return bool(value)
    if not isinstance(value, str):
        return None
    if kind == "boolean":
        return {"true": True, "false": False}.get(value.strip().lower())
    try:
        read, _ = read_either(value)
    except (ValueError, RecursionError):
        return None
    if kind == "integer" and isinstance(read, float) and read.is_integer():
        read = int(read)
    return read if _is_of_type(read, kind) else None


def _collect_required(schema: Schema, raw: Schema, place: str, repairs: _Repairs) -> None:
    """One list of required names out of the object's own ``required`` and the flags on its properties."""
    properties = raw["properties"]
    _set_required(schema, raw.get("required"), place, repairs)
    required = list(schema.get("required", []))
    for name, spec in properties.items():
        if name == "required" and isinstance(spec, list):
            repairs.add("required_moved_outward", place)
            required += [item for item in spec if isinstance(item, str) and item in schema["properties"]]
        elif isinstance(spec, dict) and (isinstance(spec.get("required"), bool) or spec.get("optional") is True):
            if spec.get("required") is True:
                required.append(name)
            elif name in required:
                required.remove(name)
            repairs.add("required_flag")
    required = list(dict.fromkeys(required))
    if required:
        schema["required"] = required
    else:
        schema.pop("required", None)


def _set_required(schema: Schema, raw: Json, place: str, repairs: _Repairs) -> None:
    """Set ``required`` to the declared names that ``raw`` means, in whichever of its broken forms."""
    properties = schema.get("properties", {})
    match raw:
        case None | False:
            names: list[Json] = []
        case True:
            names = list(properties)
            repairs.add("required_flag")
        case str():
            names = [part.strip(" \"'[]") for part in raw.split(",")]
            repairs.add("required_text")
        case dict():
            names = [name for name, flag in raw.items() if flag is True]
            repairs.add("required_map")
        case list():
            names = raw
        case _:
            raise Unfaithful(Reason.BAD_SCHEMA, f"{place}: required is {excerpt(raw)}")
    declared = [name for name in names if isinstance(name, str) and name in properties]
    if len(declared) < len(names) and isinstance(raw, list):
        repairs.add("required_undeclared_dropped", place)
    if declared:
        schema["required"] = list(dict.fromkeys(declared))
    else:
        schema.pop("required", None)
