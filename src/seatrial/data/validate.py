"""The proof that a dataset trains what will be served, row by row, by other means than the renderer's own.

The renderer refuses rows by looking at text; this looks at the tokens it gave out: they must be those of transformers'
own ``apply_chat_template``; every unbroken answer among the trained ones must follow exactly the tokens of its prompt
and end with a stop token; and what a server would decode from it must read back as the message.
"""

import itertools
import random
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from seatrial.data.conversation import Conversation, Rejection, records_file, template_messages, template_tools
from seatrial.data.parse import Malformed, parse, same_text
from seatrial.data.pool import map_records
from seatrial.data.render import Rendered, Renderer, TrainOn
from seatrial.records import JsonObject

SAMPLE_ROWS = 1000


@dataclass(frozen=True)
class RowCheck:
    """What holds for one row, and the first thing that does not."""

    mask_ok: bool
    round_trip_ok: bool
    reason: str = ""
    detail: str = ""


def validate(path: Path, renderer: Renderer, *, all_rows: bool, train_on: TrainOn = TrainOn.ALL) -> JsonObject:
    """Check the records at ``path``: all of them, or :data:`SAMPLE_ROWS` drawn at random (always the same).

    Returns the number of ``rows`` checked, how many of them are ``mask_ok`` and ``round_trip_ok``, and the
    ``failures``, each with its row (from 1), id, reason and detail.

    Raises:
        UsageError: no such file, or a line that is not a record.
    """
    sample = None if all_rows else sample_of(path, SAMPLE_ROWS)
    rows = mask_ok = round_trip_ok = 0
    failures = []
    for number, (row_id, check) in enumerate(map_records(_check, (renderer, train_on, sample), path), 1):
        if check is None:
            continue
        rows += 1
        mask_ok += check.mask_ok
        round_trip_ok += check.round_trip_ok
        if check.reason:
            failures.append({"row": number, "id": row_id, "reason": check.reason, "detail": check.detail})
    return {"rows": rows, "round_trip_ok": round_trip_ok, "mask_ok": mask_ok, "failures": failures}


def check_row(renderer: Renderer, row: Conversation, train_on: TrainOn = TrainOn.ALL) -> RowCheck:
    """All proofs on one row. A row that the renderer refuses fails both: it cannot be trained on."""
    rendered = renderer.render(row, train_on)
    if isinstance(rendered, Rejection):
        return RowCheck(False, False, rendered.reason, rendered.detail)
    return check_rendered(renderer, row, rendered, train_on)


def check_rendered(renderer: Renderer, row: Conversation, rendered: Rendered, train_on: TrainOn) -> RowCheck:
    """All proofs on what the renderer gave for ``row``."""
    mask_fault = _mask_fault(renderer, row, rendered, train_on)
    round_trip_fault = _round_trip_fault(renderer, row, rendered, train_on)
    reason, _, detail = (mask_fault or round_trip_fault).partition(": ")
    return RowCheck(not mask_fault, not round_trip_fault, reason, detail)


def answers(renderer: Renderer, rendered: Rendered) -> list[tuple[int, int]]:
    """Start and end of each trained answer, stop token included: a run of trained tokens ends at each stop token."""
    trained = np.concatenate([[False], rendered.trained, [False]])
    starts, ends = np.flatnonzero(trained[1:] & ~trained[:-1]), np.flatnonzero(trained[:-1] & ~trained[1:])
    found: list[tuple[int, int]] = []
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        stops = start + 1 + np.flatnonzero(np.isin(rendered.ids[start:end], renderer.stop_ids))
        edges = [start, *(stop for stop in stops.tolist() if stop < end), end]
        found += itertools.pairwise(edges)
    return found


def _mask_fault(renderer: Renderer, row: Conversation, rendered: Rendered, train_on: TrainOn) -> str:
    whole = renderer.tokenizer.apply_chat_template(
        template_messages(row.messages),
        tools=template_tools(row.tools),  # type: ignore[arg-type]
        chat_template=renderer.template.source,
        return_dict=False,
    )
    if rendered.ids.tolist() != whole:
        return "tokens are not those of apply_chat_template"
    turns, spans = _trained_turns(row, train_on), answers(renderer, rendered)
    if len(turns) != len(spans):
        return f"trained answers and assistant turns differ in number: {len(spans)}, {len(turns)}"
    for turn, (start, end) in zip(turns, spans, strict=True):
        if not np.array_equal(rendered.ids[:start], renderer.prompt(row.messages[:turn], row.tools)):
            return f"answer does not follow its prompt: message {turn}"
        if rendered.ids[end - 1] not in renderer.stop_ids:
            return f"answer has no stop token: message {turn}"
    return ""


def _round_trip_fault(renderer: Renderer, row: Conversation, rendered: Rendered, train_on: TrainOn) -> str:
    for turn, (start, end) in zip(_trained_turns(row, train_on), answers(renderer, rendered), strict=False):
        message, read = row.messages[turn], parse(renderer.decode(rendered.ids[start : end - 1]), renderer.parser)
        if isinstance(read, Malformed):
            return f"answer cannot be read: message {turn}: {read.reason}: {read.detail}"
        if [(call.name, call.arguments) for call in read.calls] != [(c.name, c.arguments) for c in message.tool_calls]:
            return f"calls do not come back: message {turn}: {read.calls!r:.200}"
        if not same_text(read.content, message.content):
            return f"text does not come back: message {turn}: {read.content[:200]!r}"
    return ""


def _trained_turns(row: Conversation, train_on: TrainOn) -> list[int]:
    turns = [i for i, message in enumerate(row.messages) if message.role == "assistant"]
    if train_on is TrainOn.LAST:
        turns = turns[-1:]
    return [turn for turn in turns if row.messages[turn].weight != 0]


def _check(
    shared: tuple[Renderer, TrainOn, frozenset[int] | None], number: int, row: Conversation
) -> tuple[str, RowCheck | None]:
    """The row's id and its check, None where it is not in the sample."""
    renderer, train_on, sample = shared
    return row.id, check_row(renderer, row, train_on) if sample is None or number in sample else None


def sample_of(path: Path, size: int) -> frozenset[int]:
    """Numbers, from 1, of ``size`` rows drawn at random, always the same; of all rows when there are no more."""
    with records_file(path).open("rb") as lines:
        rows = sum(1 for _ in lines)
    return frozenset(random.Random(0).sample(range(1, rows + 1), min(rows, size)))
