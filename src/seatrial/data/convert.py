"""What happens to each row on its own, in whichever process it is read."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec

from seatrial.data.contamination import Benchmark, load_benchmark, overlap
from seatrial.data.conversation import Conversation, Rejection, encode
from seatrial.data.dedup import Dedup, Fingerprint, fingerprint
from seatrial.data.reason import Reason
from seatrial.data.sources import CONVERTERS, detect
from seatrial.data.sources.turns import id_of
from seatrial.data.split import split_of
from seatrial.data.wellformed import well_formed

# Several times the longest context of today's models. Tokenizers take some 600 bytes of memory per character, and
# proving each turn takes time with the square of their number.
LONGEST_ROW_BYTES = 2 * 2**20
MOST_MESSAGES = 1000
MEDIA = ("image", "images", "video", "videos", "audio", "audios")


@dataclass(frozen=True)
class Recipe:
    """What is done to the rows. ``seed`` decides which tools are held out."""

    source: str
    dedup: Dedup = Dedup.NONE
    held_out_tools: float = 0.0
    benchmark: Path | None = None
    seed: int = 0


class InputRow(msgspec.Struct, frozen=True):
    """An undecoded row: its running number over all files, from 1, and where it stands."""

    number: int
    place: str
    text: bytes


class Outcome(msgspec.Struct, frozen=True):
    """What became of a row: a ``record`` (a line of records.jsonl) or a rejection."""

    number: int
    place: str
    id: str
    source: str
    record: bytes = b""
    rejection: Rejection | None = None
    held_out: bool = False
    has_tools: bool = False
    targets: int = 0
    targets_with_call: int = 0
    repairs: tuple[str, ...] = ()
    mark: Fingerprint = Fingerprint(b"")


def convert_rows(recipe: Recipe, rows: Sequence[InputRow]) -> list[Outcome]:
    """One outcome a row, in order."""
    return [_outcome(recipe, row) for row in rows]


def convert_row(source: str, number: int, text: bytes) -> Conversation | Rejection:
    """A row's text as a validated conversation; one without an id is named after its source and number."""
    if len(text) > LONGEST_ROW_BYTES:
        return Rejection(Reason.TOO_LONG.value, f"{len(text):,} bytes; at most {LONGEST_ROW_BYTES:,} are read")
    try:
        row = msgspec.json.decode(text)
    except ValueError as error:
        return Rejection(Reason.NOT_JSON.value, str(error))
    except RecursionError:
        return Rejection(Reason.NESTED_TOO_DEEP.value, "the row is nested deeper than it can be read")
    if not isinstance(row, dict):
        return Rejection(Reason.NOT_AN_OBJECT.value, f"the row is {type(row).__name__}")
    if media := [key for key in MEDIA if row.get(key)]:
        return Rejection(Reason.WRONG_SHAPE.value, f"the row rests on its {media[0]}, which a record has no place for")
    converted = CONVERTERS[source](row)
    if isinstance(converted, Rejection):
        return converted
    if len(converted.messages) > MOST_MESSAGES:
        return Rejection(Reason.TOO_LONG.value, f"{len(converted.messages):,} messages; at most {MOST_MESSAGES:,}")
    if not converted.id:
        converted = msgspec.structs.replace(converted, id=f"{converted.source}-{number}")
    return well_formed(converted)


def _outcome(recipe: Recipe, row: InputRow) -> Outcome:
    converted = convert_row(recipe.source, row.number, row.text)
    if isinstance(converted, Rejection):
        return _rejected(row, *_name(recipe, row), converted)
    held_out = False
    if recipe.benchmark is not None and (how := overlap(converted, _benchmark(recipe.benchmark))):
        return _rejected(row, converted.id, converted.source, Rejection(Reason.CONTAMINATED.value, how))
    if recipe.held_out_tools:
        split = split_of(converted, recipe.held_out_tools, recipe.seed)
        if split == "straddling":
            detail = "declares held-out tools but does not rest on them alone"
            return _rejected(row, converted.id, converted.source, Rejection(Reason.STRADDLES_SPLIT.value, detail))
        held_out = split == "held_out"
    try:
        record = encode(converted)
    except (ValueError, RecursionError) as error:
        return _rejected(row, converted.id, converted.source, Rejection(Reason.NOT_ENCODABLE.value, str(error)))
    targets = [message for message in converted.messages if message.role == "assistant"]
    return Outcome(
        row.number,
        row.place,
        converted.id,
        converted.source,
        record,
        held_out=held_out,
        has_tools=bool(converted.tools),
        targets=len(targets),
        targets_with_call=sum(bool(target.tool_calls) for target in targets),
        repairs=converted.repairs,
        mark=fingerprint(converted, recipe.dedup) if recipe.dedup != Dedup.NONE else Fingerprint(b""),
    )


def _rejected(row: InputRow, id: str, source: str, rejection: Rejection) -> Outcome:
    return Outcome(row.number, row.place, id, source, rejection=rejection)


def _name(recipe: Recipe, row: InputRow) -> tuple[str, str]:
    """Id and source of a row that was turned away, as far as they can be told."""
    try:
        value = msgspec.json.decode(row.text)
    except (ValueError, RecursionError):
        value = {}
    if not isinstance(value, dict):
        value = {}
    source = recipe.source if recipe.source != "auto" else detect(value) or "unknown"
    return id_of(value) or f"{source}-{row.number}", source


@lru_cache(maxsize=1)
def _benchmark(path: Path) -> Benchmark:
    return load_benchmark(path)
