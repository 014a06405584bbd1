import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.data.notation import json_text, read_concatenated, read_either, read_json, read_literal

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(VALUES)
def test_both_notations_of_a_value_are_read_back(value: object) -> None:
    assert read_either(json.dumps(value)) == (value, False)
    assert read_literal(repr(value)) == value


@given(st.lists(VALUES, max_size=4), st.sampled_from(["\n\n", " ", "\r\n", ""]))
def test_concatenated_values_are_read_back(values: list[object], separator: str) -> None:
    wrapped = [[value] for value in values]
    assert read_concatenated(separator.join(json.dumps(value) for value in wrapped)) == wrapped


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (read_json, read_literal, read_concatenated):
        try:
            value = read(text)
        except (ValueError, RecursionError):
            continue
        json.dumps(value, allow_nan=False)


@pytest.mark.parametrize(
    ("text", "value"),
    [("(1, 2)", [1, 2]), ("{2, 1}", [1, 2]), ("{'a': True, 'b': None}", {"a": True, "b": None}), (r"'\d'", r"\d")],
)
def test_python_literals_become_json_values(text: str, value: object) -> None:
    assert read_either(text) == (value, True)


@pytest.mark.parametrize("text", ["{1: 2}", "b'a'", "1 + 2j", "f(x)", "1e999", "[" * 5000, "nan", "", "..."])
def test_what_has_no_json_form_is_refused(text: str) -> None:
    with pytest.raises((ValueError, RecursionError)):
        read_either(text)


@pytest.mark.parametrize("text", ["NaN", "Infinity", "-Infinity", "1e999", '{"a": NaN}'])
def test_numbers_that_json_does_not_have_are_refused(text: str) -> None:
    for read in (read_json, read_concatenated):
        with pytest.raises(ValueError):
            read(text)


def test_the_error_of_a_broken_text_is_the_json_parsers() -> None:
    with pytest.raises(ValueError, match="JSON is malformed"):
        read_either('{"a": }')


def test_text_is_its_own_json_text() -> None:
    assert json_text("as it is") == "as it is"
    assert json_text({"é": [1.5, None]}) == '{"é": [1.5, null]}'
    assert math.isclose(json.loads(json_text(0.1)), 0.1)
