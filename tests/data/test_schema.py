"""Every dialect of tool declarations, each with the schema it means and the repairs it needs."""

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.data.reason import Reason, Unfaithful
from seatrial.data.schema import normalise_tools
from tests.data.rows import ROUTE_TOOL, TIDE_TOOL

Schema = dict[str, Any]


def parameters(raw: Any, **tool: Any) -> tuple[Schema, tuple[str, ...]]:
    tools, repairs = normalise_tools([{"name": "f", "parameters": raw, **tool}])
    jsonschema.Draft202012Validator.check_schema(tools[0].parameters)
    return tools[0].parameters, repairs


def test_a_sound_schema_is_left_as_it_is() -> None:
    assert parameters(TIDE_TOOL["parameters"]) == (TIDE_TOOL["parameters"], ())


@pytest.mark.parametrize(
    "raw",
    [
        [TIDE_TOOL, ROUTE_TOOL],
        [{"type": "function", "function": TIDE_TOOL}, {"function": ROUTE_TOOL}],
        json.dumps([TIDE_TOOL, ROUTE_TOOL]),
        [json.dumps(TIDE_TOOL), json.dumps(ROUTE_TOOL)],
    ],
)
def test_wrapped_bare_and_encoded_declarations_mean_the_same(raw: Any) -> None:
    tools, repairs = normalise_tools(raw)
    assert [tool.name for tool in tools] == ["get_tide", "plan_route"]
    assert tools[1].parameters == ROUTE_TOOL["parameters"]
    assert repairs == ()


@pytest.mark.parametrize("raw", [None, "", "  ", "null", [], "[]", '""'])
def test_no_tools(raw: Any) -> None:
    assert normalise_tools(raw)[0] == ()


@pytest.mark.parametrize("raw", [None, {}, [], "{}", "", {"type": "object"}, {"type": "dict"}, {"properties": {}}])
def test_a_tool_without_parameters_takes_an_empty_object(raw: Any) -> None:
    assert parameters(raw)[0] == {"type": "object", "properties": {}}


def test_one_tool_alone_and_text_of_text() -> None:
    assert normalise_tools(TIDE_TOOL)[0][0].name == "get_tide"
    tools, repairs = normalise_tools(json.dumps(json.dumps([TIDE_TOOL])))
    assert (tools[0].name, repairs) == ("get_tide", ("tools_encoded_twice",))
    tools, repairs = normalise_tools(repr([TIDE_TOOL]))
    assert (tools[0].name, repairs) == ("get_tide", ("python_literal_tools",))


@pytest.mark.parametrize("key", ["arguments", "input_schema", "inputSchema"])
def test_parameters_under_another_name(key: str) -> None:
    tools, repairs = normalise_tools([{"name": "f", key: TIDE_TOOL["parameters"]}])
    assert tools[0].parameters == TIDE_TOOL["parameters"]
    assert repairs == ("parameters_renamed",)


def test_flat_parameters() -> None:
    schema, repairs = parameters(
        {"a": {"type": "str"}, "b": {"type": "int, optional"}, "c": {"type": "int", "default": 1}}
    )
    assert schema == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"type": "integer", "default": 1}},
        "required": ["a"],
    }
    assert repairs == ("flat_parameters", "python_types")


@pytest.mark.parametrize("name", ["type", "properties", "required", "items", "$defs", "description", "default"])
def test_a_flat_parameter_may_have_the_name_of_a_keyword(name: str) -> None:
    schema, _ = parameters({name: {"type": "str", "description": "d"}, "other": {"type": "int"}})
    assert schema["properties"] == {name: {"type": "string", "description": "d"}, "other": {"type": "integer"}}
    assert schema["required"] == [name, "other"]


def test_flat_parameters_may_be_type_names() -> None:
    assert parameters({"a": "string", "b": "int, optional"})[0]["required"] == ["a"]


def test_types_of_other_dialects_at_every_depth() -> None:
    schema, repairs = parameters(
        {
            "type": "dict",
            "properties": {
                "a": {"type": "list", "items": {"type": "float"}},
                "b": {"type": "dict", "properties": {"c": {"type": "any"}}, "required": ["c"]},
                "d": {"anyOf": [{"type": "str"}, {"type": "None"}]},
                "e": {"type": ["int", "null"]},
                "f": "bool",
            },
        }
    )
    assert schema["properties"] == {
        "a": {"type": "array", "items": {"type": "number"}},
        "b": {"type": "object", "properties": {"c": {}}, "required": ["c"]},
        "d": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "e": {"type": ["integer", "null"]},
        "f": {"type": "boolean"},
    }
    assert repairs == ("python_types",)


def test_a_type_that_nobody_knows_is_dropped_aloud() -> None:
    schema, repairs = parameters({"type": "object", "properties": {"a": {"type": "Callable[[int], int]"}}})
    assert schema["properties"] == {"a": {}}
    assert repairs == ("unknown_type_dropped: f.a (Callable[[int], int])",)


@pytest.mark.parametrize(
    ("raw", "required", "repair"),
    [
        (["a"], ["a"], None),
        (["a", "a"], ["a"], None),
        (None, None, "null_dropped"),
        ([], [], None),
        (False, None, None),
        (True, ["a", "b"], "required_flag"),
        ("a", ["a"], "required_text"),
        ("a, b", ["a", "b"], "required_text"),
        ('["a"]', ["a"], "required_text"),
        ({"a": True, "b": False}, ["a"], "required_map"),
        (["a", "zz"], ["a"], "required_undeclared_dropped: f.zz"),
        (["a", None, 3], ["a"], "required_undeclared_dropped: f.None"),
    ],
)
def test_required_in_its_broken_forms(raw: Any, required: list[str] | None, repair: str | None) -> None:
    properties = {"a": {"type": "string"}, "b": {"type": "string"}}
    schema, repairs = parameters({"type": "object", "properties": properties, "required": raw})
    assert schema.get("required") == required
    assert repairs[0] == repair if repair else repairs == ()


@pytest.mark.parametrize("flag", [True, "true", "True"])
def test_required_as_a_flag_on_each_property(flag: Any) -> None:
    properties = {"a": {"type": "string", "required": flag}, "b": {"type": "string", "required": False}}
    schema, repairs = parameters({"type": "object", "properties": properties, "required": ["b"]})
    assert schema == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        "required": ["a"],
    }
    assert repairs == ("required_flag",)


def test_required_of_a_nested_object_stays_its_own() -> None:
    nested = {"type": "object", "properties": {"c": {"type": "string"}}, "required": ["c"]}
    schema, repairs = parameters({"type": "object", "properties": {"a": nested}})
    assert schema == {"type": "object", "properties": {"a": nested}}
    assert repairs == ()


def test_required_among_the_properties_or_beside_the_parameters() -> None:
    schema, repairs = parameters({"type": "object", "properties": {"a": {"type": "string"}, "required": ["a"]}})
    assert schema == {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    assert repairs == ("required_moved_outward: f",)
    schema, repairs = parameters({"type": "object", "properties": {"a": {"type": "string"}}}, required=["a"])
    assert schema["required"] == ["a"]
    assert repairs == ("required_moved_inward: f",)
    assert parameters({"type": "object", "properties": {}}, required=None) == parameters({})


@pytest.mark.parametrize(
    ("kind", "default", "kept", "repair"),
    [
        ("integer", "3", 3, "default_coerced"),
        ("integer", 3.0, 3, "default_coerced"),
        ("integer", "3.0", 3, "default_coerced"),
        ("number", "0.5", 0.5, "default_coerced"),
        ("boolean", "True", True, "default_coerced"),
        ("boolean", "false", False, "default_coerced"),
        ("boolean", 0, False, "default_coerced"),
        ("array", "[1, 2]", [1, 2], "default_coerced"),
        ("object", "{'a': 1}", {"a": 1}, "default_coerced"),
        ("string", 7, "7", "default_coerced"),
        ("integer", "", None, "default_dropped: f.a ('' is no integer)"),
        ("array", 0.05, None, "default_dropped: f.a ('0.05' is no array)"),
        ("number", False, None, "default_dropped: f.a ('False' is no number)"),
        ("integer", "many", None, "default_dropped: f.a ('many' is no integer)"),
        ("string", None, None, "null_dropped"),
        ("integer", 4, 4, None),
        ("string", "", "", None),
    ],
)
def test_defaults_are_coerced_or_dropped(kind: str, default: Any, kept: Any, repair: str | None) -> None:
    schema, repairs = parameters({"type": "object", "properties": {"a": {"type": kind, "default": default}}})
    assert schema["properties"]["a"].get("default") == kept
    assert type(schema["properties"]["a"].get("default")) is type(kept)
    assert repairs == ((repair,) if repair else ())


def test_a_fraction_as_default_widens_an_integer() -> None:
    schema, repairs = parameters({"type": "object", "properties": {"a": {"type": "integer", "default": "48.4"}}})
    assert schema["properties"]["a"] == {"type": "number", "default": 48.4}
    assert repairs == ("int_widened_to_number: f.a",)


def test_nulls_that_arrow_invented_go() -> None:
    nulls = {"description": None, "enum": None, "items": None, "default": None}
    schema, repairs = parameters(
        {"type": "object", "properties": {"a": {"type": "string", **nulls}, "of_another_row": None}, "$defs": None}
    )
    assert schema == {"type": "object", "properties": {"a": {"type": "string"}}}
    assert repairs == ("null_dropped",)


def test_older_drafts_and_openapi() -> None:
    schema, repairs = parameters(
        {
            "type": "object",
            "properties": {
                "a": {"type": "number", "minimum": 0, "exclusiveMinimum": True},
                "b": {"type": "array", "items": [{"type": "string"}, {"type": "int"}]},
                "c": {"type": "string", "nullable": True},
                "d": {"type": "string", "enum": []},
            },
        }
    )
    assert schema["properties"] == {
        "a": {"type": "number", "exclusiveMinimum": 0},
        "b": {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}]},
        "c": {"type": ["string", "null"]},
        "d": {"type": "string"},
    }
    assert repairs == ("draft4_bounds", "tuple_items", "python_types", "openapi_nullable", "empty_enum_dropped: f.d")


def test_fields_without_a_place_are_dropped_aloud() -> None:
    assert parameters({}, strict=True, returns={"type": "string"}, output=None)[1] == ("tool_field_dropped: f.returns",)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        ("[", Reason.BAD_TOOLS),
        (3, Reason.BAD_TOOLS),
        ([3], Reason.BAD_TOOLS),
        ([{}], Reason.BAD_TOOLS),
        ([{"name": ""}], Reason.BAD_TOOLS),
        ([{"name": 3}], Reason.BAD_TOOLS),
        ([{"name": "f", "description": 3}], Reason.BAD_TOOLS),
        ([{"name": "f", "parameters": 3}], Reason.BAD_SCHEMA),
        ([{"name": "f", "parameters": {"type": "array"}}], Reason.BAD_SCHEMA),
        ([{"name": "f", "parameters": {"type": "object", "properties": 3}}], Reason.BAD_SCHEMA),
        ([{"name": "f", "parameters": {"type": "object", "properties": {"a": 3}}}], Reason.BAD_SCHEMA),
        ([{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": 3}}}}], Reason.BAD_SCHEMA),
        ([{"name": "f", "parameters": {"type": "object", "properties": {}, "required": 3}}], Reason.BAD_SCHEMA),
        ([{"name": "f", "parameters": {"type": "object", "anyOf": 3}}], Reason.BAD_SCHEMA),
    ],
)
def test_declarations_that_mean_nothing_are_refused(raw: Any, reason: Reason) -> None:
    with pytest.raises(Unfaithful) as caught:
        normalise_tools(raw)
    assert caught.value.rejection.reason == reason


SCHEMAS = st.recursive(
    st.fixed_dictionaries({"type": st.sampled_from(["string", "int", "float", "bool", "List[int]", "any", "date"])}),
    lambda inner: (
        st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.fixed_dictionaries(
            {"type": st.just("dict"), "properties": st.dictionaries(st.text(), inner, max_size=3)},
            optional={"required": st.none() | st.booleans() | st.lists(st.text(), max_size=2) | st.text()},
        )
    ),
    max_leaves=8,
)


@given(st.dictionaries(st.text(), SCHEMAS, max_size=4))
def test_the_normal_form_is_sound_and_stays_as_it_is(properties: Schema) -> None:
    once, _ = parameters({"type": "object", "properties": properties})
    assert parameters(once) == (once, ())
