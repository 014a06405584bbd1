"""Values written as text: JSON, and the Python literals that older dataset generations hold instead."""

import ast
import math
from typing import Any

import msgspec

Json = Any


def read_json(text: str) -> Json:
    """Strict JSON (no NaN, no trailing comma).

    Raises:
        ValueError: not JSON, or not encodable; RecursionError: nested beyond what the interpreter reads.
    """
    return msgspec.json.decode(text)


def read_literal(text: str) -> Json:
    """A Python literal as a JSON value: tuples and sets become arrays.

    Raises:
        ValueError: not a literal, or one with no JSON counterpart.
    """
    try:
        return _as_json(ast.literal_eval(text.strip()))
    except (SyntaxError, TypeError, MemoryError) as error:
        raise ValueError(f"not a Python literal: {error}") from error


def read_either(text: str) -> tuple[Json, bool]:
    """JSON, else a Python literal; the flag says that it was the latter.

    Raises:
        ValueError: neither.
    """
    try:
        return read_json(text), False
    except ValueError as not_json:
        try:
            return read_literal(text), True
        except ValueError:
            raise not_json from None


def _as_json(value: object) -> Json:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if not math.isfinite(value):
                raise ValueError(f"{value} has no JSON form")
            return value
        case list() | tuple():
            return [_as_json(item) for item in value]
        case set() | frozenset():
            return sorted((_as_json(item) for item in value), key=repr)
        case dict():
            if not all(isinstance(key, str) for key in value):
                raise ValueError("an object key is not a string")
            return {key: _as_json(item) for key, item in value.items()}
        case _:
            raise ValueError(f"{type(value).__name__} has no JSON form")
