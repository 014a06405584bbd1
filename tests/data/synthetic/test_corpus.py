import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from seatrial.data.conversation import Conversation, ToolCall, decode, encode
from seatrial.data.synthetic import Mix, Split, corpus
from seatrial.data.synthetic.corpus import belongs
from seatrial.data.synthetic.frames import frames
from tests.data.synthetic.grammar import all_frames, first_request, frame_of, reads_as

ROWS = {split: list(corpus(1500 if split is Split.TRAIN else 500, seed=7, split=split)) for split in Split}
ALL = [row for rows in ROWS.values() for row in rows]
EVALUATION = [split for split in Split if split is not Split.TRAIN]
KINDS = ("single", "multiple", "parallel", "irrelevant", "missing_argument", "multi_turn")


def of_kind(kind: str) -> list[Conversation]:
    return [row for row in ALL if row.category == kind]


def calls(row: Conversation) -> list[ToolCall]:
    return [call for message in row.messages for call in message.tool_calls]


def leaves(value: Any) -> Iterator[Any]:
    for item in value.values() if isinstance(value, dict) else value:
        yield from leaves(item) if isinstance(item, list) else [item]


def open_values(row: Conversation) -> set[str]:
    """What the gold calls hold besides booleans and words of an enum."""
    schemas = {tool.name: tool.parameters["properties"] for tool in row.tools}
    return {
        str(value)
        for call in calls(row)
        for name, argument in call.arguments.items()
        if "enum" not in schemas[call.name][name] and not isinstance(argument, bool)
        for value in leaves([argument])
    }


def check_row(row: Conversation) -> None:
    """What holds for every row of every split."""
    schemas = {tool.name: tool.parameters for tool in row.tools}
    assert len(schemas) == len(row.tools) > 0
    assert row.messages[-1].role == "assistant"
    said = ""
    for message in row.messages:
        if message.role == "user":
            said += message.content + "\n"
            assert not re.search(r"\s\s|\s[.,?!]|\{|\}", message.content), message.content
        for call in message.tool_calls:
            Draft202012Validator.check_schema(schemas[call.name])
            Draft202012Validator(schemas[call.name]).validate(call.arguments)
            for value in leaves(call.arguments):
                assert isinstance(value, bool) or re.search(rf"(?<!\w){re.escape(str(value))}(?!\w)", said), (
                    value,
                    said,
                )
    answered = [message.tool_call_id for message in row.messages if message.role == "tool"]
    assert answered == [call.id for call in calls(row)][: len(answered)]
    assert decode(encode(row)) == row


@pytest.mark.parametrize("split", list(Split))
def test_every_call_is_valid_and_every_value_stands_in_the_request(split: Split) -> None:
    for row in ROWS[split]:
        check_row(row)


@settings(max_examples=60, deadline=None)
@given(st.integers(), st.sampled_from(list(Split)), st.integers(0, 10**9))
def test_any_row_of_any_seed_is_well_formed(seed: int, split: Split, start: int) -> None:
    (row,) = corpus(1, seed=seed, split=split, start=start)
    check_row(row)


def test_kinds_have_their_shapes() -> None:
    assert set(KINDS) == {row.category for row in ALL}
    for row in ALL:
        final = row.messages[-1]
        count = len(calls(row))
        assert bool(final.tool_calls) is not bool(final.content)
        if row.category in ("single", "multiple"):
            assert count == 1
        elif row.category == "parallel":
            assert count == len(final.tool_calls) in (2, 3)
        elif row.category == "multi_turn":
            assert [message.role for message in row.messages[:4]] == ["user", "assistant", "tool", "assistant"]
        else:
            assert count == 0
    assert {len(row.tools) for row in of_kind("single")} == {1, 2}
    assert {len(row.tools) for row in of_kind("multiple")} == {2, 3, 4}
    assert {len({call.name for call in calls(row)}) for row in of_kind("parallel")} == {1, 2, 3}
    assert {len(row.messages) for row in of_kind("multi_turn")} == {4, 6}


def test_the_mix_is_as_asked() -> None:
    counts = Counter(row.category for row in ROWS[Split.TRAIN])
    for kind, weight in vars(Mix()).items():
        assert counts[kind] / len(ROWS[Split.TRAIN]) == pytest.approx(weight, abs=0.04)
    only = Mix(single=0, multiple=0, parallel=1, irrelevant=0, missing_argument=0, multi_turn=0)
    assert {row.category for row in corpus(30, seed=1, split=Split.IID, mix=only)} == {"parallel"}


@pytest.mark.parametrize("split", list(Split))
def test_a_row_depends_on_its_seed_and_number_alone(split: Split) -> None:
    rows = list(corpus(40, seed=3, split=split))
    assert list(corpus(15, seed=3, split=split)) == rows[:15]
    assert list(corpus(15, seed=3, split=split, start=25)) == rows[25:]
    assert list(corpus(40, seed=4, split=split)) != rows


@pytest.mark.parametrize("split", EVALUATION)
def test_no_evaluation_request_is_one_of_training(split: Split) -> None:
    """Under any seed: two more training corpora are searched, too."""
    trained = {first_request(row) for seed in (7, 8, 9) for row in corpus(1500, seed=seed, split=Split.TRAIN)}
    assert not trained & {first_request(row) for row in ROWS[split]}


def test_a_request_can_be_of_training_or_of_iid_but_never_of_both() -> None:
    for split, other in ((Split.TRAIN, Split.IID), (Split.IID, Split.TRAIN)):
        for row in ROWS[split]:
            assert belongs(row.messages, split)
            assert not belongs(row.messages, other)


def test_unseen_values_are_unseen() -> None:
    trained = set().union(*(open_values(row) for row in corpus(4000, seed=11, split=Split.TRAIN)))
    for row in ROWS[Split.UNSEEN_VALUES]:
        assert not trained & open_values(row)
    assert all(open_values(row) for row in ALL if calls(row))


def test_unseen_phrasings_come_from_held_out_templates_and_the_others_do_not() -> None:
    one_request = [row for row in ALL if row.category in ("single", "multiple")]
    for row in one_request:
        held = row.id.startswith(Split.UNSEEN_PHRASINGS)
        tool = next(tool for tool in row.tools if tool.name == calls(row)[0].name)
        assert reads_as(first_request(row), frame_of(tool), held=held), first_request(row)


def test_unseen_tools_are_unseen() -> None:
    for split, rows in ROWS.items():
        unseen = split is Split.UNSEEN_TOOLS
        assert {frame_of(tool).name for row in rows for tool in row.tools} == {
            frame.name for frame in frames(unseen=unseen)
        }


def fitting(row: Conversation) -> list[str]:
    """Frames on offer by whose grammar the request reads."""
    held = row.id.startswith(Split.UNSEEN_PHRASINGS)
    request = first_request(row)
    return [frame.name for frame in map(frame_of, row.tools) if reads_as(request, frame, held)]


def test_one_tool_on_offer_fits_a_request_and_none_an_irrelevant_one() -> None:
    for row in ALL:
        if row.category in ("single", "multiple"):
            wanted = next(frame_of(tool).name for tool in row.tools if tool.name == calls(row)[0].name)
            assert fitting(row) == [wanted], first_request(row)
        if row.category == "irrelevant":
            assert fitting(row) == [], first_request(row)
            assert any(
                reads_as(first_request(row), frame, row.id.startswith(Split.UNSEEN_PHRASINGS)) for frame in all_frames()
            )


def test_a_missing_argument_is_required_and_missing_and_named() -> None:
    for row in of_kind("missing_argument"):
        held = row.id.startswith(Split.UNSEEN_PHRASINGS)
        question, request = row.messages[-1].content, first_request(row)
        found = []
        for tool in row.tools:
            frame = frame_of(tool)
            for name in tool.parameters["required"]:
                described = tool.parameters["properties"][name].get("description", name.replace("_", " "))
                slots = [slot.name for slot in frame.slots if slot.name == name or described in slot.descriptions]
                if f": {described}." in question and reads_as(request, frame, held, without=slots):
                    found.append(name)
        assert len(found) == 1, (request, question)


def test_schemas_vary_and_name_masking_keeps_descriptions() -> None:
    shapes: dict[str, set[str]] = {}
    masked = 0
    for row in ROWS[Split.TRAIN]:
        names = [frame_of(tool).name for tool in row.tools]
        if row.tools[0].name not in names:
            masked += 1
            for tool, name in zip(row.tools, names, strict=True):
                assert tool.name != name
                slots = {slot.name for slot in frame_of(tool).slots}
                assert not slots & tool.parameters["properties"].keys()
                assert all("description" in schema for schema in tool.parameters["properties"].values())
        for tool, name in zip(row.tools, names, strict=True):
            shapes.setdefault(name, set()).add(json.dumps(tool.parameters))
    assert 0.25 < masked / len(ROWS[Split.TRAIN]) < 0.35
    assert min(len(seen) for seen in shapes.values()) > 20
