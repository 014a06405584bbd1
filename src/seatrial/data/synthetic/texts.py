"""Documents to pre-train the tiny base on: the skills that function calling needs, under other skins.

A document shows cards (made-up schemas), a note that mentions values in plain English, and what is to be written:
the filled card, the right one of several, several, or that none fits or a value is missing. It never shows a tool
of the function-calling corpus, a request for one, or its answer format, and its values come from a universe of
their own; so a base trained on it makes no call at first, yet can read a schema, copy what it has never
seen, and write JSON of the right types. Cards and answers come in many notations, so that the skill is learnt.
"""

import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from seatrial.data.conversation import Conversation, Json, Message
from seatrial.data.synthetic.cards import Card, Note, any_noun, make_card, write_note
from seatrial.data.synthetic.frames import Slot
from seatrial.data.synthetic.request import joined
from seatrial.data.synthetic.values import STRINGS, Kind, Universe, draw, surface

SOURCE = "synthetic-texts"
_TYPES = {"int": "integer", "number": "number", "bool": "boolean", "list": "array"}


def texts(rows: int, *, seed: int, start: int = 0) -> Iterator[Conversation]:
    """Documents ``start`` to ``start + rows``; document i depends on the seed and i alone. ``category`` is ``text``."""
    kinds, weights = tuple(_WEIGHTS), tuple(_WEIGHTS.values())
    for index in range(start, start + rows):
        rng = random.Random(f"texts/{seed}/{index}")
        messages = rng.choices(kinds, weights)[0](rng)
        yield Conversation(f"text-{seed}-{index}", SOURCE, messages, category="text")


_Turns = tuple[Message, ...]


def _fill(rng: random.Random) -> _Turns:
    """One to four cards and a note for one of them."""
    cards = _cards(rng, rng.choice((1, 2, 2, 3, 3, 4)))
    chosen = rng.choice(cards)
    style = _style(cards, rng)
    written = write_note(chosen, rng)
    return _document(cards, style, written.text, style.filled([(chosen, written)]), rng)


def _fill_several(rng: random.Random) -> _Turns:
    """Two or three notes in a row, for one card or for different ones."""
    count = rng.choice((2, 2, 3))
    cards = _cards(rng, rng.choice((1, 2, 3)))
    style = _style(cards, rng)
    steps = [(chosen, write_note(chosen, rng)) for chosen in rng.choices(cards, k=count)]
    text = steps[0][1].text
    for _, written in steps[1:]:
        text += f" {joined(rng.choice(_JOINTS), written.text)}"
    return _document(cards, style, text, style.filled(steps), rng)


def _none_fits(rng: random.Random) -> _Turns:
    wanted, *cards = _cards(rng, rng.choice((2, 3, 4)))
    return _document(cards, _style(cards, rng), write_note(wanted, rng).text, rng.choice(_NONE), rng)


def _lacks(rng: random.Random) -> _Turns:
    """A needed field is not in the note; the answer names it in the card's words."""
    while True:
        cards = _cards(rng, rng.choice((1, 2, 3)))
        chosen = rng.choice(cards)
        needed = [field for field in chosen.fields if field.required]
        if len(needed) > 1:
            break
    missing = rng.choice(needed)
    style = _style(cards, rng)
    answer = rng.choice(_LACKS).format(style.names(missing))
    return _document(cards, style, write_note(chosen, rng, missing=missing).text, answer, rng)


def _go_on(rng: random.Random) -> _Turns:
    """A filled card; then one value is asked for or changed, or a result comes back and is told."""
    cards = _cards(rng, rng.choice((1, 1, 2)))
    chosen = rng.choice(cards)
    style = _style(cards, rng)
    written = write_note(chosen, rng)
    turns = _document(cards, style, written.text, style.filled([(chosen, written)]), rng)
    field = rng.choice([field for field in chosen.fields if field.name in written.values])
    way = rng.random()
    if way < 0.25:
        name, value = any_noun(rng), draw(_any_kind(rng), rng, Universe.TEXTS)
        told = rng.choice(_TOLD).format(name, surface(value))
        return *turns, Message("user", json.dumps({name: value})), Message("assistant", told)
    if way < 0.5 or not field.kind.open:
        shown = json.dumps(written.values[field.name])
        return *turns, Message("user", rng.choice(_WHICH).format(style.names(field))), Message("assistant", shown)
    value = draw(field.kind, rng, Universe.TEXTS)
    changed = Note("", written.values | {field.name: value})
    request = rng.choice(_CHANGES).format(style.names(field), surface(value))
    return *turns, Message("user", request), Message("assistant", style.filled([(chosen, changed)]))


def _lookup(rng: random.Random) -> _Turns:
    """A list of pairs; then some of them by key, or all of them in another notation."""
    keys = list(dict.fromkeys(any_noun(rng) for _ in range(rng.randint(3, 8))))
    pairs = {key: draw(_any_kind(rng), rng, Universe.TEXTS) for key in keys}
    form = rng.choice(_PAIRS)
    shown = form(pairs)
    if rng.random() < 0.5:
        asked = rng.sample(keys, rng.randint(1, min(3, len(keys))))
        answer = rng.choice(_PAIRS)({key: pairs[key] for key in asked})
        return Message("user", f"{shown}\n{rng.choice(_GIVE)} {surface(asked)}"), Message("assistant", answer)
    other = rng.choice(_PAIRS)
    return Message("user", f"{shown}\n{rng.choice(_REWRITE)}"), Message("assistant", other(pairs))


def _repeat(rng: random.Random) -> _Turns:
    """Values to say again, as they are, in reverse, or as a JSON list."""
    values = [draw(_any_kind(rng), rng, Universe.TEXTS) for _ in range(rng.randint(2, 6))]
    shown = [surface(value) for value in values]
    way = rng.randrange(3)
    if way == 0:
        return Message("user", "Again: " + "; ".join(shown)), Message("assistant", "; ".join(shown))
    if way == 1:
        return Message("user", "Backwards: " + "; ".join(shown)), Message("assistant", "; ".join(reversed(shown)))
    return Message("user", "As a list: " + "; ".join(shown)), Message("assistant", json.dumps(values))


_WEIGHTS: dict[Callable[[random.Random], _Turns], float] = {
    _fill: 0.46,
    _fill_several: 0.16,
    _none_fits: 0.09,
    _lacks: 0.09,
    _go_on: 0.1,
    _lookup: 0.06,
    _repeat: 0.04,
}


@dataclass(frozen=True)
class _Style:
    """One way to show cards and one to fill them, used through a whole document."""

    shown: Callable[[Card], str]
    filled_one: Callable[[Card, dict[str, Json]], str]
    tag: str

    def names(self, field: Slot) -> str:
        """What a field is called in words: as the cards describe it, if they do."""
        return field.name.replace("_", " ") if self.shown in _BARE else field.descriptions[0]

    def filled(self, steps: list[tuple[Card, Note]]) -> str:
        filled = (self.filled_one(chosen, written.values) for chosen, written in steps)
        return "\n".join(f"<{self.tag}>\n{text}\n</{self.tag}>" if self.tag else text for text in filled)


def _style(cards: list[Card], rng: random.Random) -> _Style:
    """Fields whose names say nothing are shown with descriptions."""
    shown = rng.choice(_SHOWN)
    if any(card.masked for card in cards):
        shown = _BARE.get(shown, shown)
    return _Style(shown, rng.choice(_FILLED), rng.choice(("", "", "card", "filled", "entry", "out")))


def _document(cards: list[Card], style: _Style, note: str, answer: str, rng: random.Random) -> _Turns:
    """Cards in the system turn, or before or after the note in the user's."""
    shown = "\n".join(style.shown(each) for each in cards)
    if rng.random() < 0.5:
        shown = f"<cards>\n{shown}\n</cards>"
    layout = rng.random()
    if layout < 0.6:
        heading = rng.choice(_HEADINGS)
        return Message("system", f"{heading}\n{shown}"), Message("user", note), Message("assistant", answer)
    if layout < 0.85:
        return Message("user", f"{shown}\n{note}"), Message("assistant", answer)
    return Message("user", f"{note}\n{shown}"), Message("assistant", answer)


def _cards(rng: random.Random, count: int) -> list[Card]:
    """Cards for different actions, though two may share the verb or the noun; later ones are the shorter."""
    cards = [make_card(rng, most_fields=5 if count < 3 else 3)]
    while len(cards) < count:
        chance, old = rng.random(), rng.choice(cards)
        verbs, noun = (old.verbs if chance < 0.15 else ()), (old.noun if 0.15 < chance < 0.3 else "")
        new = make_card(rng, most_fields=3, verbs=verbs, noun=noun)
        if all((new.verbs, new.noun) != (old.verbs, old.noun) and new.name != old.name for old in cards):
            cards.append(new)
    rng.shuffle(cards)
    return cards


def _any_kind(rng: random.Random) -> Kind:
    name = rng.choice((*STRINGS, "int", "int", "number", "bool"))
    return Kind(name, low=2, high=99999 if rng.random() < 0.3 else 300)


def _type(kind: Kind) -> str:
    return _TYPES.get(kind.name, "string")


def _property(field: Slot) -> dict[str, Json]:
    if field.kind.name == "enum":
        return {"type": "string", "enum": list(field.kind.options)}
    if field.kind.item is not None:
        return {"type": "array", "items": {"type": _type(field.kind.item)}}
    return {"type": _type(field.kind)}


def _as_schema(card: Card) -> str:
    """JSON Schema, as tools come in, too: only what is asked for and how it is answered is another thing."""
    properties = {field.name: {**_property(field), "description": field.descriptions[0]} for field in card.fields}
    schema = {"type": "object", "properties": properties, "required": card.required}
    return json.dumps({"name": card.name, "description": card.about, "parameters": schema})


def _as_bare_schema(card: Card) -> str:
    """JSON Schema without descriptions but of the card itself."""
    properties = {field.name: _property(field) for field in card.fields}
    schema = {"type": "object", "properties": properties, "required": card.required}
    return json.dumps({"name": card.name, "description": card.about, "parameters": schema})


def _as_fields(card: Card) -> str:
    fields = [
        {"field": field.name, **_property(field), "means": field.descriptions[0], "needed": field.required}
        for field in card.fields
    ]
    return json.dumps({"card": card.name, "use": card.about, "fields": fields})


def _as_lines(card: Card) -> str:
    lines = [f"{card.name}: {card.about}"]
    lines += [f"- {_signature(field)}, {field.descriptions[0]}" for field in card.fields]
    return "\n".join(lines)


def _as_bare_lines(card: Card) -> str:
    return "\n".join([f"{card.name}: {card.about}", *(f"- {_signature(field)}" for field in card.fields)])


def _as_signature(card: Card) -> str:
    fields = (f"{_signature(field)} [{field.descriptions[0]}]" for field in card.fields)
    return f"{card.name}({', '.join(fields)}) // {card.about}"


def _signature(field: Slot) -> str:
    kind = "|".join(field.kind.options) or (f"{_type(field.kind.item)}[]" if field.kind.item else _type(field.kind))
    return f"{field.name}{'' if field.required else '?'}: {kind}"


# Most often as lines or as JSON Schema, the two ways in which chat templates show tools.
_SHOWN = (
    *[_as_lines] * 4,
    *[_as_bare_lines] * 4,
    _as_schema,
    _as_bare_schema,
    _as_signature,
    _as_fields,
)
_BARE = {_as_bare_lines: _as_lines, _as_bare_schema: _as_schema}
_FILLED: tuple[Callable[[Card, dict[str, Json]], str], ...] = (
    lambda card, values: json.dumps({"card": card.name, "values": values}),
    lambda card, values: json.dumps({"title": card.name, "filled": values}),
    lambda card, values: json.dumps({card.name: values}),
    lambda card, values: json.dumps({"entries": values, "of": card.name}),
    lambda card, values: f"{card.name} {json.dumps(values)}",
    lambda card, values: f"{card.name}({', '.join(f'{key}: {json.dumps(value)}' for key, value in values.items())})",
    lambda card, values: "\n".join([card.name, *(f"{key} = {json.dumps(value)}" for key, value in values.items())]),
)
_PAIRS: tuple[Callable[[dict[str, Json]], str], ...] = (
    lambda pairs: json.dumps(pairs),
    lambda pairs: "\n".join(f"{key}: {surface(value)}" for key, value in pairs.items()),
    lambda pairs: "\n".join(f"{key} = {json.dumps(value)}" for key, value in pairs.items()),
    lambda pairs: "; ".join(f"the {key} is {surface(value)}" for key, value in pairs.items()) + ".",
)
_HEADINGS = (
    "Fill the card that the note is about.",
    "These are the cards. Write down what is asked.",
    "You keep these cards:",
    "Choose a card and fill it from the note.",
    "Cards:",
)
_JOINTS = ("Next,", "Also,", "Then", "And", "Later,", "Another thing:", "Besides that,", "When that is done,")
_NONE = ("No card fits this note.", "Nothing here is for that.")
_LACKS = ("The note does not say this: {}.", "Not given: {}.", "One thing is missing: {}.")
_WHICH = ("Read back this: {}.", "What was written for {}?")
_TOLD = ("The {} is {}.", "It came back with {1} as the {0}.", "They sent the {}: {}.")
_CHANGES = ("The same card again, with a new {}: {}.", "Change {} to {}.", "Fill it once more, only {} becomes {}.")
_GIVE = ("Give me only", "Only", "What about")
_REWRITE = ("Write this in another way.", "All of them again, please.")
