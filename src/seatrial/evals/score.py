"""Judging predicted tool calls against gold ones: pure functions from text and values to verdicts and shares.

Two calls are equal when their names are equal and their arguments are equal as JSON values: strings exactly, booleans
are not numbers, lists in order, objects in any order, a parameter left out is not a parameter given. ``1`` equals
``1.0`` only where the tool's schema says ``number``. Several calls are compared as a multiset, in any order.

What the shares are of:

=================  ======================================  =====================================================
share              of                                      counted when
=================  ======================================  =====================================================
exact_call         rows whose gold has calls               the predicted calls are exactly the gold calls
call_recall        rows whose gold has calls               at least one well-formed call was made, right or wrong
name_accuracy      rows whose gold has calls               the called functions are the gold's, with repetitions
argument_accuracy  the gold's arguments, over all rows     given with the right value, in a call paired with its own
irrelevance        rows whose gold has no call             no call was made and nothing malformed was written
=================  ======================================  =====================================================

None means anything alone: a model that always calls has full recall, one that never calls full irrelevance.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence

import msgspec
import networkx as nx

from seatrial.data.conversation import Conversation, Json, ToolCall
from seatrial.records import Frozen, Proportion


class Prediction(msgspec.Struct, frozen=True):
    """What a model answered. ``malformed`` is the parser's reason when the text tries to call and fails, else empty.

    ``finished`` is False when the token limit cut the answer off before a stop token.
    """

    text: str
    calls: tuple[ToolCall, ...] = ()
    malformed: str = ""
    finished: bool = True


class RowScore(msgspec.Struct, frozen=True):
    """The verdict on one row; ``faults`` says in words all that is wrong and is empty exactly when the row is right."""

    category: str
    expects_call: bool
    right: bool
    called: bool
    names_right: bool
    arguments_right: int
    arguments_due: int
    malformed: str
    finished: bool
    faults: tuple[str, ...]


class Scores(Frozen):
    """Shares over n rows, as the module defines them. ``parse_failures`` counts malformed answers by reason."""

    n: int
    exact_call: Proportion
    call_recall: Proportion
    irrelevance: Proportion
    name_accuracy: Proportion
    argument_accuracy: Proportion
    parse_failures: dict[str, int]
    unfinished: int


class PairedChange(Frozen):
    """The same rows judged twice. ``p_value``: chance of a split this uneven if neither were better."""

    n: int
    gained: int
    lost: int
    p_value: float


def score_row(gold: Conversation, prediction: Prediction) -> RowScore:
    """Judge ``prediction`` against the last turn of ``gold``, which must be the assistant's."""
    due = gold.messages[-1].tool_calls
    schemas = {tool.name: tool.parameters for tool in gold.tools}
    pairs = list(_pair(due, prediction.calls, schemas))
    faults = [f"malformed call: {prediction.malformed}"] if prediction.malformed else []
    for expected, got in pairs:
        faults += _faults(expected, got, schemas)
    return RowScore(
        category=gold.category or "uncategorised",
        expects_call=bool(due),
        right=not faults,
        called=bool(prediction.calls),
        names_right=Counter(call.name for call in due) == Counter(call.name for call in prediction.calls),
        arguments_right=sum(len(_agreeing(expected, got, schemas)) for expected, got in pairs if expected and got),
        arguments_due=sum(len(call.arguments) for call in due),
        malformed=prediction.malformed,
        finished=prediction.finished,
        faults=tuple(faults),
    )


def aggregate(rows: Sequence[RowScore]) -> Scores:
    """Shares with 95 % Wilson intervals; the one of ``argument_accuracy`` treats arguments as independent."""
    calling = [row for row in rows if row.expects_call]
    silent = [row for row in rows if not row.expects_call]
    return Scores(
        n=len(rows),
        exact_call=_share(row.right for row in calling),
        call_recall=_share(row.called for row in calling),
        irrelevance=_share(row.right for row in silent),
        name_accuracy=_share(row.names_right for row in calling),
        argument_accuracy=Proportion.of(
            sum(row.arguments_right for row in calling), sum(row.arguments_due for row in calling)
        ),
        parse_failures=dict(Counter(row.malformed for row in rows if row.malformed).most_common()),
        unfinished=sum(not row.finished for row in rows),
    )


def by_category(rows: Iterable[RowScore]) -> dict[str, Scores]:
    groups: defaultdict[str, list[RowScore]] = defaultdict(list)
    for row in rows:
        groups[row.category].append(row)
    return {category: aggregate(groups[category]) for category in sorted(groups)}


def mcnemar(before: Sequence[bool], after: Sequence[bool]) -> PairedChange:
    """Exact two-sided McNemar test on paired verdicts: under the null, changes are fair coin flips.

    Q. McNemar, Psychometrika 12, 1947; the exact form sums the binomial tail, so it holds for any n.
    """
    pairs = list(zip(before, after, strict=True))
    gained = sum(not old and new for old, new in pairs)
    lost = sum(old and not new for old, new in pairs)
    changed = gained + lost
    tail = sum(math.comb(changed, k) for k in range(min(gained, lost) + 1))
    return PairedChange(n=len(pairs), gained=gained, lost=lost, p_value=min(1.0, 2 * tail / 2**changed))


def equal(one: Json, other: Json, schema: Json, root: Json) -> bool:
    """Whether two values are the same JSON value under ``schema``, a part of ``root``, into which its $refs point."""
    match one, other:
        case dict(), dict():
            return one.keys() == other.keys() and all(
                equal(one[key], other[key], _below(schema, key, root), root) for key in one
            )
        case list(), list():
            return len(one) == len(other) and all(
                equal(*pair, _below(schema, i, root), root) for i, pair in enumerate(zip(one, other, strict=True))
            )
        case (int(), float()) | (float(), int()) if not isinstance(one, bool) and not isinstance(other, bool):
            # Python compares int with float exactly, even beyond 2**53.
            return one == other and any(_says_number(branch) for branch in _branches(schema, root))
        case _:
            return type(one) is type(other) and bool(one == other)


def _share(verdicts: Iterable[bool]) -> Proportion:
    listed = list(verdicts)
    return Proportion.of(sum(listed), len(listed))


def _pair(
    due: Sequence[ToolCall], made: Sequence[ToolCall], schemas: dict[str, Json]
) -> Iterator[tuple[ToolCall | None, ToolCall | None]]:
    """Pair calls of one name so that as many arguments as possible agree; those left over are paired with None.

    A maximum-weight bipartite matching, so that neither the order of the calls nor a greedy first choice matters.
    """
    graph = nx.Graph()
    for i, expected in enumerate(due):
        for j, got in enumerate(made):
            if expected.name == got.name:
                graph.add_edge(("due", i), ("made", j), weight=len(_agreeing(expected, got, schemas)))
    matched = dict(
        sorted(edge, key=lambda node: node[0]) for edge in nx.max_weight_matching(graph, maxcardinality=True)
    )
    for i, expected in enumerate(due):
        partner = matched.get(("due", i))
        yield expected, made[partner[1]] if partner else None
    taken = {j for _, j in matched.values()}
    yield from ((None, got) for j, got in enumerate(made) if j not in taken)


def _agreeing(expected: ToolCall, got: ToolCall, schemas: dict[str, Json]) -> list[str]:
    root = schemas.get(expected.name, {})
    return [
        name
        for name, value in expected.arguments.items()
        if name in got.arguments and equal(value, got.arguments[name], _below(root, name, root), root)
    ]


def _faults(expected: ToolCall | None, got: ToolCall | None, schemas: dict[str, Json]) -> Iterator[str]:
    if expected is None and got is not None:
        yield f"{got.name}: called, but not asked for"
    if expected is not None and got is None:
        yield f"{expected.name}: not called"
    if expected is None or got is None:
        return
    agreeing = _agreeing(expected, got, schemas)
    for name, value in expected.arguments.items():
        if name not in got.arguments:
            yield f"{expected.name}.{name}: left out; expected {_shown(value)}"
        elif name not in agreeing:
            yield f"{expected.name}.{name}: got {_shown(got.arguments[name])}; expected {_shown(value)}"
    for name, value in got.arguments.items():
        if name not in expected.arguments:
            yield f"{expected.name}.{name}: got {_shown(value)}; expected to be left out"


def _shown(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)


def _says_number(schema: dict[str, Json]) -> bool:
    declared = schema.get("type")
    return declared == "number" or (isinstance(declared, list) and "number" in declared)


def _below(schema: Json, key: str | int, root: Json) -> Json:
    """The part of ``schema`` that governs member ``key`` of an object or item ``key`` of a list."""
    parts: list[Json] = []
    for branch in _branches(schema, root):
        if isinstance(key, int):
            prefix = branch.get("prefixItems") or []
            parts.append(prefix[key] if key < len(prefix) else branch.get("items"))
        else:
            properties = branch.get("properties") or {}
            parts.append(properties[key] if key in properties else branch.get("additionalProperties"))
    return {"anyOf": parts}


def _branches(schema: Json, root: Json, seen: frozenset[str] = frozenset()) -> Iterator[dict[str, Json]]:
    """``schema`` and all it may stand for: its alternatives, and what its local references point at."""
    if not isinstance(schema, dict):
        return
    yield schema
    for keyword in ("anyOf", "oneOf", "allOf"):
        for part in schema.get(keyword) or []:
            yield from _branches(part, root, seen)
    reference = schema.get("$ref")
    if isinstance(reference, str) and reference.startswith("#") and reference not in seen:
        target = root
        for part in reference.removeprefix("#").split("/")[1:]:
            target = target.get(part.replace("~1", "/").replace("~0", "~")) if isinstance(target, dict) else None
        yield from _branches(target, root, seen | {reference})
