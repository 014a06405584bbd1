"""One tool as a row offers it, and one request for it: the gold arguments first, the sentence after."""

import random
from dataclasses import dataclass

from seatrial.data.conversation import Json, Tool
from seatrial.data.synthetic.frames import REST, Frame, Slot, Template
from seatrial.data.synthetic.values import SYLLABLES, Kind, Universe, draw, surface

MASKED_SHARE = 0.3
DESCRIBED_SHARE = 0.3
_TYPES = {"int": "integer", "number": "number", "bool": "boolean", "list": "array"}


@dataclass(frozen=True)
class Offer:
    """A frame as one row shows it. ``names`` holds the parameters' names by slot name; hidden slots are not in it."""

    frame: Frame
    tool: Tool
    names: dict[str, str]

    @property
    def shown(self) -> list[Slot]:
        return [slot for slot in self.frame.slots if slot.name in self.names]

    def describes(self, slot: Slot) -> str:
        """What the schema calls the parameter: its description, or its name in words if it has none."""
        name = self.names[slot.name]
        described: str = self.tool.parameters["properties"][name].get("description", name.replace("_", " "))
        return described

    def requires(self, slot: Slot) -> bool:
        return self.names[slot.name] in self.tool.parameters["required"]


@dataclass(frozen=True)
class Request:
    """A sentence, and the arguments it determines by slot name: exactly what it mentions.

    ``open`` says that some value is of an open vocabulary, without which a request belongs to no universe.
    """

    text: str
    values: dict[str, Json]
    open: bool

    def arguments(self, offer: Offer) -> dict[str, Json]:
        """Under the names and in the order of the row's schema."""
        return {name: self.values[slot] for slot, name in offer.names.items() if slot in self.values}


def show(frame: Frame, rng: random.Random, *, masked: bool, most_optional: int) -> Offer:
    """Show a frame with some of its optional parameters, in any order, one of them perhaps made required.

    Parameters are described if their names are masked, else in three tools of ten.
    """
    optional = [slot for slot in frame.slots if not slot.required]
    kept = rng.sample(optional, min(len(optional), rng.randint(0, most_optional)))
    shown = [slot for slot in frame.slots if slot.required] + kept
    rng.shuffle(shown)
    required = {slot.name for slot in shown if slot.required or (slot.kind.name != "bool" and rng.random() < 0.15)}
    names = {slot.name: made_up_name(rng) if masked else slot.name for slot in shown}
    if len(set(names.values())) < len(names):
        return show(frame, rng, masked=masked, most_optional=most_optional)
    properties = {names[slot.name]: _schema(slot.kind, rng) for slot in shown}
    if masked or rng.random() < DESCRIBED_SHARE:
        for slot in shown:
            properties[names[slot.name]]["description"] = rng.choice(slot.descriptions)
    parameters = {
        "type": "object",
        "properties": properties,
        "required": [names[slot.name] for slot in shown if slot.name in required],
    }
    tool = Tool(made_up_name(rng) if masked else frame.name, rng.choice(frame.descriptions), parameters)
    return Offer(frame, tool, names)


def ask(offer: Offer, rng: random.Random, universe: Universe, *, held: bool, missing: Slot | None = None) -> Request:
    """A request that mentions every required slot but ``missing``, and each optional one at the toss of a coin."""
    mentioned = [slot for slot in offer.shown if slot is not missing and (offer.requires(slot) or rng.random() < 0.6)]
    values = {slot.name: draw(slot.kind, rng, universe) for slot in mentioned}
    templates = offer.frame.held_templates if held else offer.frame.templates
    template = rng.choice([choice for choice in templates if choice.named <= values.keys()])
    return Request(_write(template, mentioned, values, rng), values, any(slot.kind.open for slot in mentioned))


def mention(slot: Slot, value: Json, rng: random.Random) -> str:
    """The words that state one value."""
    if slot.kind.name == "bool":
        return rng.choice(slot.phrases[0 if value else 1 :: 2])
    return rng.choice(slot.phrases).replace("{}", surface(value))


def joined(joint: str, sentence: str) -> str:
    """A sentence after a word or two that lead over to it."""
    keeps_capital = sentence.startswith(("I ", "I'", '"')) or joint.endswith(".")
    return f"{joint} {sentence if keeps_capital else sentence[0].lower() + sentence[1:]}"


def made_up_name(rng: random.Random) -> str:
    """A name that says nothing. Two are the same once in half a million, so callers check."""
    return f"{rng.choice(SYLLABLES)}{rng.choice(SYLLABLES)}{rng.randrange(10)}"


def _write(template: Template, mentioned: list[Slot], values: dict[str, Json], rng: random.Random) -> str:
    others = [slot for slot in mentioned if slot.name not in template.named]
    rng.shuffle(others)
    others.sort(key=lambda slot: not slot.first)
    rest = [" " + mention(slot, values[slot.name], rng) for slot in others]
    pieces = list(template.pieces)
    for i in range(1, len(pieces), 2):
        pieces[i] = "".join(rest) if pieces[i] == REST else surface(values[pieces[i]])
    return "".join(pieces)


def _schema(kind: Kind, rng: random.Random) -> dict[str, Json]:
    if kind.name == "enum":
        return {"type": "string", "enum": rng.sample(kind.options, len(kind.options))}
    if kind.item is not None:
        return {"type": "array", "items": _schema(kind.item, rng)}
    return {"type": _TYPES.get(kind.name, "string")}
