"""The scorer: gold against itself is right, any change to a gold call is wrong, order never matters."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.data.conversation import Conversation, Message, Tool, ToolCall
from seatrial.evals.score import Prediction, aggregate, by_category, equal, mcnemar, score_row

Json = Any

SCHEMA: Json = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "limit": {"type": "number"},
        "points": {"type": "array", "items": {"$ref": "#/$defs/point"}},
        "either": {"anyOf": [{"type": "string"}, {"type": "number"}]},
        "nullable": {"type": ["number", "null"]},
    },
    "additionalProperties": {"type": "number"},
    "$defs": {"point": {"type": "array", "prefixItems": [{"type": "number"}, {"type": "integer"}]}},
}
TOOLS = tuple(Tool(name, parameters=SCHEMA) for name in ("forecast", "search", "book"))

texts = st.text('aé" {0', max_size=4)
scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**60), 2**60),
    st.floats(allow_nan=False, allow_infinity=False),
    texts,
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
arguments = st.dictionaries(st.sampled_from(["city", "days", "limit", "points", "either", "other"]), values, max_size=4)
calls = st.builds(ToolCall, st.sampled_from([tool.name for tool in TOOLS]), arguments)
call_lists = st.lists(calls, min_size=1, max_size=4)


def row(*due: ToolCall, category: str = "") -> Conversation:
    turns = (Message("user", "please"), Message("assistant", "" if due else "I cannot.", tool_calls=due))
    return Conversation("row", "test", turns, TOOLS, category)


def said(*made: ToolCall, malformed: str = "") -> Prediction:
    return Prediction("text", made, malformed)


def agree(name: str, one: Json, other: Json) -> bool:
    return score_row(row(ToolCall("forecast", {name: one})), said(ToolCall("forecast", {name: other}))).right


@given(call_lists, st.randoms())
def test_gold_in_any_order_is_right(due: list[ToolCall], random: Any) -> None:
    made = copy.deepcopy(due)
    random.shuffle(made)
    score = score_row(row(*due), said(*made))
    assert score.right and score.called and score.names_right
    assert score.arguments_right == score.arguments_due


@given(call_lists, st.data())
def test_any_change_to_gold_is_wrong(due: list[ToolCall], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(due) - 1))
    victim = due[at]
    changes = [ToolCall(victim.name + "_", victim.arguments), ToolCall(victim.name, {**victim.arguments, "new": None})]
    for name, value in victim.arguments.items():
        changes.append(ToolCall(victim.name, {k: v for k, v in victim.arguments.items() if k != name}))
        changes.append(ToolCall(victim.name, {**victim.arguments, name: [value, "more"]}))
        changes.append(ToolCall(victim.name, {**victim.arguments, name: f"{value} "}))
    for change in changes:
        score = score_row(row(*due), said(*due[:at], change, *due[at + 1 :]))
        assert not score.right and score.faults
    assert not score_row(row(*due), said(*due[:at], *due[at + 1 :])).right
    assert not score_row(row(*due), said(*due, victim)).right


@given(call_lists, call_lists)
def test_right_is_symmetric_and_blind_to_order(one: list[ToolCall], other: list[ToolCall]) -> None:
    forward, backward = score_row(row(*one), said(*other)), score_row(row(*other), said(*one))
    assert forward.right == backward.right
    assert forward.arguments_right == backward.arguments_right
    reversed_score = score_row(row(*reversed(one)), said(*other))
    assert (reversed_score.right, reversed_score.arguments_right) == (forward.right, forward.arguments_right)


@given(values, values)
def test_without_a_schema_values_are_equal_when_json_says_them_alike(one: Json, other: Json) -> None:
    assert equal(one, one, {}, {})
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (
        equal(one, other, {}, {}) == equal(other, one, {}, {}) == (same or {repr(one), repr(other)} == {"0.0", "-0.0"})
    )


@pytest.mark.parametrize(
    ("name", "one", "other", "equal"),
    [
        ("limit", 1, 1.0, True),
        ("either", 1, 1.0, True),
        ("nullable", 2.0, 2, True),
        ("anything_else", 3, 3.0, True),
        ("points", [[1, 2]], [[1.0, 2]], True),
        ("points", [[1, 2]], [[1, 2.0]], False),
        ("days", 1, 1.0, False),
        ("limit", 1, True, False),
        ("limit", 1, "1", False),
        ("limit", 2**53 + 1, float(2**53), False),
        ("city", "Rome", "rome", False),
        ("city", "Zürich", "Zürich", True),
        ("city", {"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
        ("city", ["a", "b"], ["b", "a"], False),
        ("nullable", None, "", False),
    ],
)
def test_values_are_equal_as_the_schema_says(name: str, one: Json, other: Json, equal: bool) -> None:
    assert agree(name, one, other) is equal
    assert agree(name, other, one) is equal


def test_a_reference_to_itself_or_to_nothing_ends() -> None:
    loop = {"$ref": "#/$defs/a", "$defs": {"a": {"anyOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/none"}]}}}
    assert not equal(1.0, 1, loop, loop)


def test_pairing_is_the_best_one_not_the_first_one() -> None:
    # The first prediction agrees with both gold calls; only giving it to the second leaves each a partner that agrees.
    due = (ToolCall("search", {"city": "a", "days": 1}), ToolCall("search", {"city": "b", "days": 1}))
    made = (ToolCall("search", {"city": "x", "days": 1}), ToolCall("search", {"city": "a", "days": 2}))
    assert score_row(row(*due), said(*made)).arguments_right == 2
    assert score_row(row(*due), said(*reversed(made))).arguments_right == 2


def test_faults_name_the_call_the_parameter_and_both_values() -> None:
    due = (ToolCall("forecast", {"city": "Oslo", "days": 3}), ToolCall("book", {}))
    made = (ToolCall("forecast", {"city": "Bergen", "limit": 2}), ToolCall("search", {}))
    assert score_row(row(*due), said(*made)).faults == (
        'forecast.city: got "Bergen"; expected "Oslo"',
        "forecast.days: left out; expected 3",
        "forecast.limit: got 2; expected to be left out",
        "book: not called",
        "search: called, but not asked for",
    )


def test_a_malformed_call_is_neither_a_call_nor_an_abstention() -> None:
    broken = said(malformed="arguments are not JSON")
    assert not score_row(row(), broken).right
    assert score_row(row(), said()).right
    assert not score_row(row(), said(ToolCall("book", {}))).right
    missed = score_row(row(ToolCall("book", {})), broken)
    assert not missed.called and not missed.right


def test_each_share_has_its_own_rows() -> None:
    book = ToolCall("book", {"city": "a", "days": 1})
    rows = [
        score_row(row(book, category="single"), said(book)),
        score_row(row(book, category="single"), said(ToolCall("book", {"city": "a", "days": 2}))),
        score_row(row(book, category="single"), said(malformed="cut off")),
        score_row(row(book, category="single"), said()),
        score_row(row(category="irrelevant"), said()),
        score_row(row(category="irrelevant"), said(malformed="cut off")),
    ]
    scores = aggregate(rows)
    assert scores.n == 6
    assert (scores.exact_call.value, scores.exact_call.n) == (0.25, 4)
    assert (scores.call_recall.value, scores.call_recall.n) == (0.5, 4)
    assert (scores.name_accuracy.value, scores.name_accuracy.n) == (0.5, 4)
    assert (scores.argument_accuracy.value, scores.argument_accuracy.n) == (3 / 8, 8)
    assert (scores.irrelevance.value, scores.irrelevance.n) == (0.5, 2)
    assert scores.parse_failures == {"cut off": 2}
    groups = by_category(rows)
    assert {category: group.n for category, group in groups.items()} == {"irrelevant": 2, "single": 4}
    assert groups["irrelevant"].exact_call.n == 0
    assert groups["single"].exact_call == scores.exact_call


def test_mcnemar_against_the_binomial_tail_by_hand() -> None:
    # 9 gained, 1 lost: 2 * (C(10,0) + C(10,1)) / 2**10.
    before = [False] * 9 + [True] + [True] * 5
    after = [True] * 9 + [False] + [True] * 5
    change = mcnemar(before, after)
    assert (change.n, change.gained, change.lost) == (15, 9, 1)
    assert change.p_value == pytest.approx(22 / 1024)
    assert mcnemar([True, False], [True, False]).p_value == 1.0
    with pytest.raises(ValueError, match="shorter"):
        mcnemar([True], [])


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60))
def test_mcnemar_is_a_probability_and_symmetric(pairs: list[tuple[bool, bool]]) -> None:
    before, after = [old for old, _ in pairs], [new for _, new in pairs]
    forward, backward = mcnemar(before, after), mcnemar(after, before)
    assert 0.0 < forward.p_value <= 1.0
    assert forward.p_value == backward.p_value
    assert (forward.gained, forward.lost) == (backward.lost, backward.gained)
