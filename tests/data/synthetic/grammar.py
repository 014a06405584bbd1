"""Reads a request back by the frames' tables: which frames could have asked for it, and with what left out."""

import functools
import re
from collections.abc import Collection

from seatrial.data.conversation import Conversation, Tool
from seatrial.data.synthetic.frames import REST, Frame, Slot, Template, frames
from seatrial.data.synthetic.values import Kind

_VALUES = {
    "int": r"\d+",
    "number": r"\d+\.\d",
    "date": r"\d{4}-\d\d-\d\d",
    "time": r"\d\d:\d\d",
    "email": r"[a-z]+@[a-z]+\.[a-z]+",
    "id": r"[A-Z]+-?\d+|\d+-[A-Z]+|[a-z]+\d+",
    "digits": r"\d+",
    "word": r"[a-z]+",
    "first": r"[A-Z][a-z]+",
    "person": r"[A-Z][a-z]+ [A-Z][a-z]+",
    "place": r"(?:[A-Z][a-z]+ )?[A-Z][a-z]+",
    "brand": r"[A-Z][a-z]+(?: [A-Z][a-z]+| \d+)?",
    "title": r"[A-Za-z]+ [A-Za-z]+(?: [A-Za-z]+)?",
    "sentence": r"[a-z]+ the [a-z ]+",
}


def all_frames() -> tuple[Frame, ...]:
    return frames(unseen=False) + frames(unseen=True)


def frame_of(tool: Tool) -> Frame:
    """The frame behind a tool, whatever its names: every description belongs to one frame."""
    (frame,) = (frame for frame in all_frames() if tool.description in frame.descriptions)
    return frame


def first_request(row: Conversation) -> str:
    return next(message.content for message in row.messages if message.role == "user")


def reads_as(text: str, frame: Frame, held: bool, without: Collection[str] = ()) -> bool:
    """Whether the frame's grammar makes this sentence, a sentence in front or behind allowed for."""
    templates = frame.held_templates if held else frame.templates
    return any(_pattern(frame, template, frozenset(without)).fullmatch(text) for template in templates)


@functools.cache
def _pattern(frame: Frame, template: Template, without: frozenset[str]) -> re.Pattern[str]:
    allowed = [slot for slot in frame.slots if slot.name not in without]
    phrases = "|".join(_phrase(slot) for slot in allowed if slot.name not in template.named)
    by_name = {slot.name: slot for slot in frame.slots}
    pieces = [
        (f"(?: (?:{phrases}))*" if piece == REST else f"(?:{_value(by_name[piece].kind)})")
        if i % 2
        else re.escape(piece)
        for i, piece in enumerate(template.pieces)
    ]
    return re.compile(rf"(?:[A-Z][a-z ]+[.!] )?{''.join(pieces)}(?: [A-Z][a-z ]+[.!])?")


def _phrase(slot: Slot) -> str:
    return "|".join(re.escape(phrase).replace(r"\{\}", f"(?:{_value(slot.kind)})") for phrase in slot.phrases)


def _value(kind: Kind) -> str:
    if kind.name == "enum":
        return "|".join(kind.options)
    if kind.item is not None:
        item = f"(?:{_value(kind.item)})"
        return f"{item}(?:, {item})*(?: and {item})?"
    return _VALUES.get(kind.name, "")
