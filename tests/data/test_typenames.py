import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.data.typenames import is_optional, parse_type, union

NUMBER, INTEGER, STRING = {"type": "number"}, {"type": "integer"}, {"type": "string"}


@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("str", STRING),
        ("int, optional", INTEGER),
        ("float (optional)", NUMBER),
        ("optional bool", {"type": "boolean"}),
        ("List[float]", {"type": "array", "items": NUMBER}),
        ("list", {"type": "array"}),
        ("List[List[int]]", {"type": "array", "items": {"type": "array", "items": INTEGER}}),
        ("List[Union[int, float]]", {"type": "array", "items": NUMBER}),
        ("Union[int, str]", {"type": ["integer", "string"]}),
        ("int | None", {"type": ["integer", "null"]}),
        ("Optional[str]", {"type": ["string", "null"]}),
        ("Optional[List[int]], optional", {"anyOf": [{"type": "array", "items": INTEGER}, {"type": "null"}]}),
        ("Dict[str, float]", {"type": "object", "additionalProperties": NUMBER}),
        ("Dict[str, Any]", {"type": "object", "additionalProperties": {}}),
        ("dict", {"type": "object"}),
        ("Tuple[float, float]", {"type": "array", "prefixItems": [NUMBER, NUMBER], "minItems": 2, "maxItems": 2}),
        ("Tuple[int, ...]", {"type": "array", "items": INTEGER}),
        ("set", {"type": "array", "uniqueItems": True}),
        ("Set[str]", {"type": "array", "uniqueItems": True, "items": STRING}),
        ("Literal['a', 'b']", {"enum": ["a", "b"]}),
        ("np.ndarray", {"type": "array"}),
        ("typing.List[int]", {"type": "array", "items": INTEGER}),
        ("List['int']", {"type": "array", "items": INTEGER}),
        ("Any", {}),
        ("datetime", {"type": "string", "format": "date-time"}),
    ],
)
def test_type_expressions(text: str, schema: dict[str, object]) -> None:
    assert parse_type(text) == schema


@pytest.mark.parametrize("text", ["", "Callable[[float], float]", "the name", "int()", "foo", "List[foo]", "x" * 500])
def test_what_is_no_type(text: str) -> None:
    assert parse_type(text) is None


@given(st.text())
def test_any_text_is_a_schema_or_none(text: str) -> None:
    schema = parse_type(text)
    assert schema is None or isinstance(schema, dict)


def test_optional_is_told_by_the_type() -> None:
    assert is_optional("str, optional")
    assert is_optional("Optional[int]")
    assert not is_optional("str")


def test_union_of_anything_and_something_is_anything() -> None:
    assert union([{}, STRING]) == {}
