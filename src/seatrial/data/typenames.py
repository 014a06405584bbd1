"""Types as datasets spell them, ``List[Union[int, float]], optional`` among them, as JSON Schema."""

import ast
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

Schema = dict[str, Any]

TYPE_NAMES: Mapping[str, tuple[str, ...]] = {
    "string": ("str", "text", "char"),
    "integer": ("int", "long"),
    "number": ("float", "double", "decimal"),
    "boolean": ("bool",),
    "array": ("list", "tuple", "sequence", "iterable", "ndarray"),
    "object": ("dict", "mapping", "map"),
    "null": ("none", "nonetype"),
}
ALIASES: Mapping[str, Schema] = {
    **{name: {"type": kind} for kind, names in TYPE_NAMES.items() for name in (kind, *names)},
    "any": {},
    "set": {"type": "array", "uniqueItems": True},
    "date": {"type": "string", "format": "date"},
    "time": {"type": "string", "format": "time"},
    "datetime": {"type": "string", "format": "date-time"},
}

LONGEST_TYPE = 400  # characters; whatever is longer is prose


def is_optional(type_text: str) -> bool:
    """Whether the type says that the parameter may be left out."""
    return "optional" in type_text.lower()


@lru_cache(maxsize=4096)
def parse_type(text: str) -> Schema | None:
    """Schema of a type name or Python type expression; None when it is neither. Do not modify the result."""
    if len(text) > LONGEST_TYPE:
        return None
    bare = text.strip()
    for marker in (", optional", "(optional)", "optional "):
        bare = bare.replace(marker, "").strip()
    try:
        return _of_node(ast.parse(bare, mode="eval").body)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        return None


def union(members: Sequence[Schema]) -> Schema:
    """What satisfies any of ``members``. A number admits integers, so it stands for both."""
    if any(not member for member in members):
        return {}
    if len(members) == 1:
        return dict(members[0])
    if not all(member.keys() == {"type"} and isinstance(member["type"], str) for member in members):
        return {"anyOf": list(members)}
    kinds = list(dict.fromkeys(member["type"] for member in members))
    if "number" in kinds and "integer" in kinds:
        kinds.remove("integer")
    return {"type": kinds[0] if len(kinds) == 1 else kinds}


def _of_node(node: ast.expr) -> Schema:
    """Raises ValueError for what is no type."""
    match node:
        case ast.Constant(value=None):
            return {"type": "null"}
        case ast.Constant(value=str(name)):
            return _of_node(ast.parse(name, mode="eval").body)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return _named(name)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return union([_of_node(left), _of_node(right)])
        case ast.Subscript(value=ast.Name(id=name) | ast.Attribute(attr=name), slice=inner):
            return _generic(name.lower(), inner.elts if isinstance(inner, ast.Tuple) else [inner])
        case _:
            raise ValueError("not a type")


def _named(name: str) -> Schema:
    schema = ALIASES.get(name.lower())
    if schema is None:
        raise ValueError(f"unknown type {name}")
    return dict(schema)


def _generic(name: str, inner: Sequence[ast.expr]) -> Schema:
    match name:
        case "optional":
            return union([_of_node(inner[0]), {"type": "null"}])
        case "union":
            return union([_of_node(item) for item in inner])
        case "literal":
            return {"enum": [ast.literal_eval(item) for item in inner]}
        case "tuple" if len(inner) == 2 and isinstance(inner[1], ast.Constant) and inner[1].value is ...:
            return {"type": "array", "items": _of_node(inner[0])}
        case "tuple":
            items = [_of_node(item) for item in inner]
            return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
        case "dict" | "mapping":
            return {"type": "object", "additionalProperties": _of_node(inner[-1])}
        case _:
            schema = _named(name)
            if schema.get("type") == "array":
                schema["items"] = _of_node(inner[0])
            return schema
