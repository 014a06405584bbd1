"""The tools of the synthetic corpus: their schemas, and how people ask for them.

A frame is one tool, written in a small table:

    + book_table: Reserve a table at a restaurant. / Book a table for a party.
      ^meal! brand: name of the meal / what to eat | {} | the {} menu
      restaurant! place: name of the restaurant / place to eat | at {}
      guests! int 2 60: number of people | for {} people | for a party of {}
      outdoor bool: sit outside | outside | inside
      gives reference id: The table is booked under {}.
      > Book a table{*}.
      ~ I am hungry, get me in{*}.

``+`` begins a frame of training, ``-`` one that training never sees. A slot has a name (with ``!`` when required, and
``^`` when it is the object of the sentence and stands first), a kind of value (:meth:`Kind.parse`), descriptions
between slashes, and the phrases that mention it; a bool has phrases for true and for false in turn. ``gives`` is the
tool's result and the answers that tell it. ``>`` is a request, ``~`` one held out as an unseen phrasing; in both
``{slot}`` stands for a bare value and ``{*}`` for the phrases of all slots that are mentioned and not named in it, in
any order. A request begins with a word, never with a value, so that another sentence can lead over to it.
"""

import functools
import re
from dataclasses import dataclass

from seatrial.data.synthetic.frames import home, leisure, money, travel, work
from seatrial.data.synthetic.values import Kind

DOMAINS = {"travel": travel, "home": home, "work": work, "money": money, "leisure": leisure}
REST = "*"


@dataclass(frozen=True)
class Slot:
    """One parameter. In ``phrases`` ``{}`` is the value; of a bool they say true, false, true, false, and so on."""

    name: str
    kind: Kind
    required: bool
    descriptions: tuple[str, ...]
    phrases: tuple[str, ...]
    first: bool = False


@dataclass(frozen=True)
class Template:
    """A request: ``pieces`` alternate literal text and a slot's name (or ``*``), literal first."""

    text: str
    pieces: tuple[str, ...]
    named: frozenset[str]


@dataclass(frozen=True)
class Frame:
    """One tool and the ways to ask for it."""

    name: str
    domain: str
    descriptions: tuple[str, ...]
    unseen: bool
    slots: tuple[Slot, ...]
    result: Slot
    templates: tuple[Template, ...]
    held_templates: tuple[Template, ...]


@functools.cache
def frames(*, unseen: bool) -> tuple[Frame, ...]:
    """Frames of training, or those held out as unseen tools."""
    return tuple(
        frame
        for domain, module in DOMAINS.items()
        for frame in parse_frames(module.TABLE, domain)
        if frame.unseen is unseen
    )


def parse_frames(table: str, domain: str) -> list[Frame]:
    """Frames of one domain's table.

    Raises:
        ValueError: a line that does not follow the notation above.
    """
    blocks = re.split(r"^(?=[+-] )", table.strip("\n"), flags=re.MULTILINE)
    return [_parse_frame(block.strip().splitlines(), domain) for block in blocks if block.strip()]


def _parse_frame(lines: list[str], domain: str) -> Frame:
    head, *body = [line.strip() for line in lines]
    name, descriptions = head[2:].split(": ", 1)
    requests = [line for line in body if line[0] in ">~"]
    results = [line for line in body if line.startswith("gives ")]
    slots = tuple(parse_slot(line) for line in body if line not in requests and line not in results)
    (result,) = results
    result_name, kind, answer = re.fullmatch(r"gives (\w+) ([\w ]+): (.*)", result).groups()  # type: ignore[union-attr]
    return Frame(
        name=name,
        domain=domain,
        descriptions=tuple(descriptions.split(" / ")),
        unseen=head.startswith("-"),
        slots=slots,
        result=Slot(result_name, Kind.parse(kind), True, (), tuple(answer.split(" | "))),
        templates=tuple(_parse_template(line[2:], slots) for line in requests if line.startswith(">")),
        held_templates=tuple(_parse_template(line[2:], slots) for line in requests if line.startswith("~")),
    )


def parse_slot(line: str) -> Slot:
    """A slot's line of the notation above.

    Raises:
        ValueError: it does not follow the notation.
    """
    match = re.fullmatch(r"(\^?)([\w<>-]+)(!?) ([\w -]+): ([^|]+?) \| (.+)", line)
    if match is None:
        raise ValueError(f"not a slot: {line!r}")
    first, name, required, kind, descriptions, phrases = match.groups()
    return Slot(
        name,
        Kind.parse(kind),
        bool(required),
        tuple(descriptions.split(" / ")),
        tuple(phrases.split(" | ")),
        bool(first),
    )


def _parse_template(text: str, slots: tuple[Slot, ...]) -> Template:
    pieces = tuple(re.split(r"\{(\*|\w+)\}", text))
    named = frozenset(pieces[1::2]) - {REST}
    unknown = named - {slot.name for slot in slots}
    if unknown or REST not in pieces or not pieces[0]:
        raise ValueError(f"names {sorted(unknown)}, lacks {{*}} or begins with a value: {text!r}")
    return Template(text, pieces, named)
