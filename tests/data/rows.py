"""Rows made up for the tests, one sound example of each format."""

import copy
import json
from typing import Any

Row = dict[str, Any]

TIDE_TOOL = {
    "name": "get_tide",
    "description": "Tide at a harbour",
    "parameters": {
        "type": "object",
        "properties": {"harbour": {"type": "string"}, "metres": {"type": "boolean"}},
        "required": ["harbour"],
    },
}
ROUTE_TOOL = {
    "name": "plan_route",
    "description": "Route between two harbours",
    "parameters": {
        "type": "object",
        "properties": {"start": {"type": "string"}, "end": {"type": "string"}, "knots": {"type": "integer"}},
        "required": ["start", "end"],
    },
}

GLAIVE: Row = {
    "system": "SYSTEM: You are a helpful assistant with access to the following functions. Use them if required -\n"
    + json.dumps(TIDE_TOOL, indent=4)
    + "\n\n"
    + json.dumps(ROUTE_TOOL, indent=4)
    + "\n\n",
    "chat": "USER: When is high tide at King's Quay?\n\n\n"
    'ASSISTANT: <functioncall> {"name": "get_tide", "arguments": \'{"harbour": "King\'s Quay", "metres": true}\'} '
    "<|endoftext|>\n\n\n"
    'FUNCTION RESPONSE: {"high": "14:05"}\n\n\n'
    "ASSISTANT: High tide is at 14:05. <|endoftext|>\n\n\n"
    "USER: Thanks!\n\n\n"
    "ASSISTANT: You're welcome. <|endoftext|>\n\n\n",
}

SHAREGPT: Row = {
    "conversations": [
        {"from": "human", "value": "When is high tide at Brest, and how do I get there from Cork?"},
        {
            "from": "function_call",
            "value": json.dumps(
                [
                    {"name": "get_tide", "arguments": {"harbour": "Brest"}},
                    {"name": "plan_route", "arguments": {"start": "Cork", "end": "Brest"}},
                ]
            ),
        },
        {"from": "observation", "value": '[{"high": "09:10"}, {"miles": 290}]'},
        {"from": "gpt", "value": "At 09:10; it is 290 miles."},
    ],
    "system": "You advise sailors.",
    "tools": json.dumps([TIDE_TOOL, ROUTE_TOOL]),
}

XLAM: Row = {
    "id": 17,
    "query": "Depth at 48.4, -4.5 and the tide at Brest?",
    "answers": json.dumps(
        [
            {"name": "sounding", "arguments": {"lat": 48.4, "lon": -4.5}},
            {"name": "tide_table", "arguments": {"harbour": "Brest"}},
        ]
    ),
    "tools": json.dumps(
        [
            {
                "name": "sounding",
                "description": "Depth of the sea",
                "parameters": {
                    "lat": {"description": "Latitude", "type": "int"},
                    "lon": {"description": "Longitude", "type": "float"},
                    "datum": {"description": "Datum", "type": "str, optional", "default": "LAT"},
                },
            },
            {
                "name": "tide_table",
                "description": "Tides of a harbour",
                "parameters": {
                    "harbour": {"description": "Name", "type": "str"},
                    "days": {"description": "How many", "type": "int", "default": "3"},
                    "hours": {"description": "Which", "type": "List[int], optional"},
                },
            },
        ]
    ),
}

HERMES: Row = {
    "id": "h-1",
    "conversations": [
        {
            "from": "system",
            "value": "You are a function calling AI model. You are provided with function signatures within "
            "<tools></tools> XML tags.\n<tools>\n"
            + json.dumps([{"type": "function", "function": TIDE_TOOL}])
            + "\n</tools>\nFor each function call return a json object within <tool_call></tool_call> tags.",
        },
        {"from": "human", "value": "Tides at Brest and Cork?"},
        {
            "from": "gpt",
            "value": "Let me look.\n"
            '<tool_call>\n{"arguments": {"harbour": "Brest"}, "name": "get_tide"}\n</tool_call>\n'
            "<tool_call>\n{'name': 'get_tide', 'arguments': {'harbour': \"Cork\", 'metres': True}}\n</tool_call>\n",
        },
        {
            "from": "tool",
            "value": '<tool_response>\n{"name": "get_tide", "content": {"high": "09:10"}}\n</tool_response>\n'
            '<tool_response>\n{"name": "get_tide", "content": {"high": "11:40"}}\n</tool_response>\n',
        },
        {"from": "gpt", "value": "Brest 09:10, Cork 11:40.\n"},
    ],
    "category": "Sailing",
}

TOOLACE_TOOLS = [
    {
        "name": "Tide Tables / v2.1 (EU)",
        "description": "Tides",
        "parameters": {
            "type": "dict",
            "properties": {"harbour": {"type": "string"}, "levels": {"type": "list"}, "opts": {"type": "dict"}},
            "required": ["harbour"],
        },
        "required": None,
    },
    {"name": "Tide Tables", "description": "Old tides", "parameters": {"type": "dict", "properties": {}}},
    {
        "name": "newAddress",
        "description": "Berth",
        "parameters": {"type": "dict", "properties": {"n": {"type": "float"}}, "required": None},
    },
]
TOOLACE: Row = {
    "system": "You are an expert in composing functions. You are given a question and a set of possible functions. \n"
    "Based on the question, you will need to make one or more function/tool calls to achieve the purpose. \n"
    "If none of the function can be used, point it out. If the given question lacks the parameters required by the "
    "function,\nalso point it out. You should only return the function call in tools call sections.\n"
    "Today is 2025-02-14, Friday. Here is a list of functions in JSON format that you can invoke:\n"
    + json.dumps(TOOLACE_TOOLS)
    + ". \nShould you decide to return the function call(s). \nPut it in the format of "
    "[func1(params_name=params_value, params_name2=params_value2...), func2(params)]\n\n"
    "NO other text MUST be included. \n",
    "conversations": [
        {"from": "user", "value": "Tides at St. John's (both), please"},
        {
            "from": "assistant",
            "value": '[Tide Tables / v2.1 (EU)(harbour="St. John\'s, (north)", levels=[1, "two", {"a": [true, null]}],'
            " opts={'x': None}), newAddress(n=-1.5), Tide Tables()]",
        },
        {"from": "tool", "value": '[{"a": 1}, {"b": 2}, {"c": 3}]'},
        {"from": "assistant", "value": "Here they are."},
    ],
}

OPENAI: Row = {
    "messages": [
        {"role": "system", "content": "You advise sailors."},
        {"role": "user", "content": "Tides at Brest and Cork?"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "call_b",
                    "type": "function",
                    "function": {"name": "get_tide", "arguments": '{"harbour": "Brest"}'},
                },
                {
                    "id": "call_c",
                    "type": "function",
                    "function": {"name": "get_tide", "arguments": '{"harbour": "Cork"}'},
                },
            ],
        },
        {"role": "tool", "tool_call_id": "call_c", "content": '{"high": "11:40"}'},
        {"role": "tool", "tool_call_id": "call_b", "content": '{"high": "09:10"}'},
        {"role": "assistant", "content": "Brest 09:10, Cork 11:40.", "weight": 0},
        {"role": "user", "content": "Thanks"},
        {"role": "assistant", "content": "You're welcome.", "weight": 1},
    ],
    "tools": [{"type": "function", "function": TIDE_TOOL}],
    "parallel_tool_calls": True,
}

EXAMPLES: dict[str, Row] = {
    "glaive": GLAIVE,
    "sharegpt": SHAREGPT,
    "xlam": XLAM,
    "hermes": HERMES,
    "toolace": TOOLACE,
    "openai": OPENAI,
}


def changed(row: Row, **fields: Any) -> Row:
    """A deep copy with some top-level fields replaced."""
    return copy.deepcopy(row) | fields
