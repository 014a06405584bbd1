"""Values written as text: JSON, and the Python literals that older dataset generations hold instead.

Everything read here is plain, finite JSON data: no NaN, no infinity, no tuples. Nesting beyond what the interpreter
can follow raises RecursionError, which the converters turn into a rejection.
"""

import ast
import json
import math
import warnings
from typing import Any

import msgspec

Json = Any


def read_json(text: str) -> Json:
    """Strict JSON: no NaN, no trailing comma, no lone surrogate.

    Raises:
        ValueError: not JSON.
    """
    return msgspec.json.decode(text)


def read_literal(text: str) -> Json:
    """A Python literal as a JSON value: tuples and sets become arrays.

    Raises:
        ValueError: not a literal, or one with no JSON counterpart.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the parser warns of escapes such as "\d", which it keeps as they are
            return _as_json(ast.literal_eval(text.strip()))
    except (SyntaxError, TypeError, MemoryError) as error:
        raise ValueError(f"not a Python literal: {error}") from error


def read_either(text: str) -> tuple[Json, bool]:
    """JSON, else a Python literal; the flag says that it was the latter.

    Raises:
        ValueError: neither; the message is the JSON parser's.
    """
    try:
        return read_json(text), False
    except ValueError as not_json:
        try:
            return read_literal(text), True
        except ValueError:
            raise not_json from None


def read_concatenated(text: str) -> list[Json]:
    """JSON values that stand one after another with nothing but white space between them.

    Raises:
        ValueError: something else is there.
    """
    values, position = [], 0
    while position < len(text):
        value, position = _DECODER.raw_decode(text, position)
        values.append(value)
        while position < len(text) and text[position].isspace():
            position += 1
    return values


def read_prefix(text: str, position: int) -> tuple[Json, int]:
    """The JSON value that starts at ``position``, and where it ends.

    Raises:
        ValueError: no JSON value starts there.
    """
    return _DECODER.raw_decode(text, position)


def json_text(value: Json) -> str:
    """``value`` as JSON, or as it is when it is text already: what a tool message holds."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise ValueError(f"{number} is out of range")
    return value


_DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_finite)


def _as_json(value: object) -> Json:
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return _finite(repr(value))
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
