import json
from typing import Any

import pytest

from seatrial.data.conversation import Conversation, Rejection
from seatrial.data.convert import convert_row
from seatrial.data.reason import Reason
from tests.data.rows import XLAM, Row, changed


def convert(row: Row) -> Conversation | Rejection:
    return convert_row("xlam", 1, json.dumps(row).encode())


def accepted(row: Row) -> Conversation:
    result = convert(row)
    assert isinstance(result, Conversation), result
    return result


def one_tool(parameters: dict[str, Any], *arguments: dict[str, Any]) -> Row:
    answers = [{"name": "f", "arguments": each} for each in arguments]
    tools = [{"name": "f", "description": "d", "parameters": parameters}]
    return {"id": 1, "query": "q", "answers": json.dumps(answers), "tools": json.dumps(tools)}


def test_a_row_becomes_a_question_and_its_calls() -> None:
    row = accepted(XLAM)
    assert [message.role for message in row.messages] == ["user", "assistant"]
    assert [(c.name, c.id) for c in row.messages[1].tool_calls] == [("sounding", "call_0"), ("tide_table", "call_1")]
    assert row.id == "17"
    assert row.category == "parallel"


def test_flat_parameters_become_schemas_and_the_gold_widens_an_integer() -> None:
    sounding, tide_table = accepted(XLAM).tools
    assert sounding.parameters == {
        "type": "object",
        "properties": {
            "lat": {"description": "Latitude", "type": "number"},
            "lon": {"description": "Longitude", "type": "number"},
            "datum": {"description": "Datum", "type": "string", "default": "LAT"},
        },
        "required": ["lat", "lon"],
    }
    assert tide_table.parameters["properties"]["days"] == {"description": "How many", "type": "integer", "default": 3}
    assert tide_table.parameters["properties"]["hours"]["items"] == {"type": "integer"}
    assert tide_table.parameters["required"] == ["harbour"]
    assert accepted(XLAM).repairs == (
        "flat_parameters",
        "python_types",
        "default_coerced",
        "int_widened_to_number: sounding.lat",
    )


def test_integers_inside_lists_and_tuples_are_widened_too() -> None:
    row = one_tool(
        {"a": {"type": "List[List[int]]"}, "b": {"type": "Tuple[int, str]"}}, {"a": [[1], [2, 0.5]], "b": [1.5, ""]}
    )
    properties = accepted(row).tools[0].parameters["properties"]
    assert properties["a"]["items"]["items"] == {"type": "number"}
    assert properties["b"]["prefixItems"] == [{"type": "number"}, {"type": "string"}]


def test_only_what_the_gold_disproves_is_widened() -> None:
    parameters = {"a": {"type": "int"}, "b": {"type": "int"}}
    row = accepted(one_tool(parameters, {"a": 1, "b": 2.0}, {"a": 1.5, "b": 2}))
    assert row.tools[0].parameters["properties"] == {"a": {"type": "number"}, "b": {"type": "integer"}}


def test_an_inferred_requirement_yields_to_the_gold() -> None:
    row = one_tool({"a": {"type": "str"}, "b": {"type": "str"}}, {"a": "x"})
    assert accepted(row).tools[0].parameters["required"] == ["a"]
    assert "required_relaxed: f.b" in accepted(row).repairs
    # The same tools in another format, as in the data sets that were built on them.
    turns = [{"from": "human", "value": "q"}, {"from": "function_call", "value": row["answers"]}]
    other = convert_row("sharegpt", 1, json.dumps({"conversations": turns, "tools": row["tools"]}).encode())
    assert isinstance(other, Conversation)
    assert other.tools == accepted(row).tools


def test_of_two_tools_with_one_name_the_one_that_fits_the_calls_stays() -> None:
    row = one_tool({"city": {"type": "str"}}, {"town": "Brest"})
    other = {"name": "f", "description": "other", "parameters": {"town": {"type": "str"}}}
    row["tools"] = json.dumps([*json.loads(row["tools"]), other, {"name": "g", "parameters": {}}])
    converted = accepted(row)
    assert [(tool.name, tool.description) for tool in converted.tools] == [("f", "other"), ("g", "")]
    assert "duplicate_tool_dropped: f" in converted.repairs


def test_a_widened_tool_does_not_touch_the_others() -> None:
    row = changed(XLAM, answers=json.dumps([{"name": "sounding", "arguments": {"lat": 0.5, "lon": 1}}]))
    assert [tool.name for tool in accepted(row).tools] == ["sounding", "tide_table"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"answers": "[]"}, Reason.EMPTY_TURN),
        ({"answers": "[{"}, Reason.WRONG_SHAPE),
        ({"answers": '{"name": "f"}'}, Reason.WRONG_SHAPE),
        ({"answers": '[{"name": "sounding"}]'}, Reason.MALFORMED_CALL),
        ({"answers": '["sounding"]'}, Reason.MALFORMED_CALL),
        ({"answers": '[{"name": "sounding", "arguments": "x"}]'}, Reason.ARGUMENTS_NOT_JSON),
        ({"answers": '[{"name": "nosuch", "arguments": {}}]'}, Reason.UNDECLARED_TOOL),
        (
            {"answers": '[{"name": "sounding", "arguments": {"lat": 1, "lon": 2, "alt": 3}}]'},
            Reason.UNDECLARED_ARGUMENT,
        ),
        (
            {"answers": '[{"name": "sounding", "arguments": {"lat": "[0.02] * 5", "lon": 2}}]'},
            Reason.ARGUMENTS_VIOLATE_SCHEMA,
        ),
        ({"tools": "["}, Reason.BAD_TOOLS),
        ({"tools": "3"}, Reason.BAD_TOOLS),
        ({"tools": None}, Reason.UNDECLARED_TOOL),
        ({"query": ""}, Reason.EMPTY_TURN),
        ({"query": None}, Reason.WRONG_SHAPE),
    ],
)
def test_rows_with_a_defect_are_rejected_for_it(fields: dict[str, Any], reason: Reason) -> None:
    result = convert(changed(XLAM, **fields))
    assert isinstance(result, Rejection)
    assert result.reason == reason
