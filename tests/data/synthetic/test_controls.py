"""Predictors that must fail: whoever does not read the tools, the request or their connection gets nothing."""

import re
from collections import Counter, defaultdict

from seatrial.data.conversation import Conversation, Tool, ToolCall
from seatrial.data.synthetic import Mix, Split, corpus
from tests.data.synthetic.grammar import first_request, frame_of

ONE_CALL = Mix(single=0.4, multiple=0.6, parallel=0, irrelevant=0, missing_argument=0, multi_turn=0)
TRAINED = list(corpus(1200, seed=1, split=Split.TRAIN, mix=ONE_CALL))
ASKED = list(corpus(150, seed=1, split=Split.IID, mix=ONE_CALL))


def gold(row: Conversation) -> ToolCall:
    (call,) = row.messages[-1].tool_calls
    return call


def same(one: ToolCall, other: ToolCall) -> bool:
    return (one.name, one.arguments) == (other.name, other.arguments)


def masked(row: Conversation) -> bool:
    return row.tools[0].name != frame_of(row.tools[0]).name


def words(row: Conversation) -> set[str]:
    return set(re.findall(r"\w+", first_request(row).lower()))


def nearest(row: Conversation) -> Conversation:
    """The training row whose request has most words in common."""
    asked = words(row)
    return max(TRAINED, key=lambda other: len(asked & words(other)) / len(asked | words(other)))


def test_a_predictor_blind_to_the_tools_makes_no_exact_call() -> None:
    """It recognises what is asked for, so the request is enough for that, and yet gets nothing right."""
    neighbours = {row.id: nearest(row) for row in ASKED}
    frames_found = [frame_of(tool_called(row)).name == frame_of(tool_called(neighbours[row.id])).name for row in ASKED]
    assert sum(frames_found) / len(ASKED) > 0.6
    assert sum(masked(row) for row in ASKED) > 30
    for row in ASKED:
        assert not same(gold(row), gold(neighbours[row.id]))
        if masked(row):
            assert gold(row).name != gold(neighbours[row.id]).name


def tool_called(row: Conversation) -> Tool:
    return next(tool for tool in row.tools if tool.name == gold(row).name)


def test_shuffled_labels_are_found_out_by_their_values() -> None:
    """A gold call of another row that asks for the same tool has values that this request does not hold."""
    by_frame = defaultdict(list)
    for row in TRAINED:
        by_frame[frame_of(tool_called(row)).name].append(row)
    consistent = pairs = 0
    for rows in by_frame.values():
        for row, other in zip(rows, rows[1:] + rows[:1], strict=True):
            pairs += 1
            consistent += all(str(value) in first_request(row) for value in gold(other).arguments.values())
    assert pairs == len(TRAINED)
    assert consistent / pairs < 0.01


def test_a_predictor_blind_to_the_request_only_guesses() -> None:
    """Neither its place nor its number of parameters tells the right tool."""
    rows = [row for row in corpus(3000, seed=5, split=Split.TRAIN, mix=ONE_CALL) if len(row.tools) > 1]
    chance = sum(1 / len(row.tools) for row in rows) / len(rows)
    first = sum(row.tools[0].name == gold(row).name for row in rows) / len(rows)
    longest = sum(max(row.tools, key=lambda tool: len(str(tool))).name == gold(row).name for row in rows) / len(rows)
    assert abs(first - chance) < 0.05
    assert abs(longest - chance) < 0.05


def test_the_number_of_tools_does_not_tell_whether_to_call() -> None:
    calling: dict[int, Counter[bool]] = defaultdict(Counter)
    for row in corpus(3000, seed=6, split=Split.TRAIN):
        calling[len(row.tools)][bool(row.messages[-1].tool_calls)] += 1
    for tools in (1, 2, 3):
        assert min(calling[tools].values()) > 0.15 * calling[tools].total(), calling
