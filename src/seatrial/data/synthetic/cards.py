"""Made-up cards, the schemas of the pre-training documents: named fields with types, and sentences that fill them.

A card is put together from an action (a verb and a noun) and from roles (where from, how many, for whom, ...)
that borrow further nouns, so that there are more cards than documents. None is a tool of the function-calling
corpus: a card whose name is that of a tool is made again.
"""

import functools
import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from seatrial.data.conversation import Json
from seatrial.data.synthetic.frames import Slot, frames, parse_slot
from seatrial.data.synthetic.request import MASKED_SHARE, made_up_name, mention
from seatrial.data.synthetic.values import Kind, Universe, draw
from seatrial.data.synthetic.words import ADJECTIVES, NOUNS, PEOPLE, ROLES, UNITS, VERBS


@dataclass(frozen=True)
class Card:
    """A schema to fill. ``verbs`` say the same thing: the first is the card's, notes use any of them.

    The names of a ``masked`` card, made-up words or unrelated ones, say nothing: only its descriptions do.
    """

    name: str
    about: str
    fields: tuple[Slot, ...]
    verbs: tuple[str, ...]
    noun: str
    masked: bool

    @property
    def required(self) -> list[str]:
        return [field.name for field in self.fields if field.required]


@dataclass(frozen=True)
class Note:
    """A sentence or two, and the values they give, by field name in the card's order."""

    text: str
    values: dict[str, Json]


def make_card(rng: random.Random, *, most_fields: int, verbs: tuple[str, ...] = (), noun: str = "") -> Card:
    """A card of two fields or more, at least one of them required, for an action that may be given in part."""
    while True:
        does, thing = verbs or rng.choice(VERBS), noun or any_noun(rng)
        masked = rng.random() < MASKED_SHARE
        mask = rng.choice((made_up_name, _unrelated_name)) if masked else None
        name = mask(rng) if mask else _name(does[0], thing, rng)
        roles = rng.sample(range(len(ROLES)), rng.randint(2, most_fields))
        fields = {field.name: field for field in (_field(role, thing, mask, rng) for role in roles)}
        if not _like_a_tool(name, does, thing) and len(fields) > 1 and any(field.required for field in fields.values()):
            break
    about = _sentence(rng.choice(_ABOUT).format(verb=does[0], noun=thing, adjective=rng.choice(ADJECTIVES)))
    return Card(name, about, tuple(fields.values()), does, thing, masked)


def write_note(card: Card, rng: random.Random, *, missing: Slot | None = None) -> Note:
    """A request for what the card is about, that gives its required fields but ``missing`` and some of the others."""
    given = [field for field in card.fields if field is not missing and (field.required or rng.random() < 0.6)]
    values = {field.name: draw(field.kind, rng, Universe.TEXTS) for field in given}
    phrases = [_phrase(field, values[field.name], rng) for field in given]
    rng.shuffle(phrases)
    after = [phrase for phrase in phrases if phrase[1] not in "([" and rng.random() < 0.15]
    inside = [phrase for phrase in phrases if phrase not in after]
    template = rng.choice(_NOTES)
    verb, adjective = rng.choice(card.verbs), rng.choice(ADJECTIVES)
    text = _sentence(template.format(verb=verb, noun=card.noun, adjective=adjective, rest="".join(inside)))
    for phrase in after:
        text += rng.choice(_AFTERTHOUGHTS).format(phrase)
    return Note(text, values)


def _phrase(field: Slot, value: Json, rng: random.Random) -> str:
    """The words of the role, or now and then the field's own name or description: ``with 12 as the number of keys``."""
    if field.kind.name == "bool" or rng.random() < 0.8:
        return " " + mention(field, value, rng)
    shown = mention(Slot("", field.kind, True, (), ("{}",)), value, rng)
    forms = _CLAUSES if field.descriptions[0].startswith(_QUESTION_WORDS) else _APPOSITIONS
    return rng.choice(forms).format(shown, field.descriptions[0])


def _sentence(text: str) -> str:
    """With a capital letter, and ``an`` where it belongs."""
    text = _ARTICLE.sub("an ", text)
    return text[0].upper() + text[1:]


def _field(role: int, noun: str, mask: Callable[[random.Random], str] | None, rng: random.Random) -> Slot:
    other = noun if rng.random() < 0.3 else any_noun(rng)
    words = {"n": other, "a": rng.choice(ADJECTIVES), "u": rng.choice(UNITS), "p": rng.choice(PEOPLE)}
    pattern = _roles()[role]

    def filled(text: str) -> str:
        for letter, borrowed in words.items():
            text = text.replace(f"<{letter}>", borrowed)
        return text

    kind = pattern.kind
    if kind.name == "enum":
        kind = Kind("enum", options=tuple(rng.sample(rng.choice((ADJECTIVES, _english())), rng.randint(2, 4))))
    return Slot(
        name=mask(rng) if mask else filled(rng.choice(pattern.name.split("-"))),
        kind=kind,
        required=rng.random() < 0.65,
        descriptions=(filled(rng.choice(pattern.descriptions)),),
        phrases=tuple(filled(phrase) for phrase in pattern.phrases),
    )


def any_noun(rng: random.Random) -> str:
    """A noun of these documents, or any English word: what stands in a noun's place need not be known to be copied."""
    return rng.choice(NOUNS) if rng.random() < 0.5 else rng.choice(_english())


def _name(verb: str, noun: str, rng: random.Random) -> str:
    middle = [rng.choice(_english())] if rng.random() < 0.35 else []
    return "_".join(rng.choice(([verb, *middle, noun], [verb, *middle, noun], [noun, *middle, verb])))


def _unrelated_name(rng: random.Random) -> str:
    return "_".join(rng.sample(_english(), rng.choice((1, 2, 2, 3))))


@functools.cache
def _english() -> tuple[str, ...]:
    """Every word of this module's stock and every word that requests are written with, each by itself.

    A base that had never met the words "plane" or "parcel" would have to learn English from the fine-tuning rows.
    What it must not meet is a tool, its parameters, or a request: words here are drawn singly.
    """
    sentences = [
        text
        for unseen in (False, True)
        for frame in frames(unseen=unseen)
        for text in (
            *frame.descriptions,
            *(template.text for template in (*frame.templates, *frame.held_templates)),
            *(text for slot in frame.slots for text in (slot.name, *slot.descriptions, *slot.phrases)),
            *(option for slot in frame.slots for option in slot.kind.options),
        )
    ]
    words = set(re.findall(r"[a-z]{3,}", " ".join(sentences).lower()))
    return tuple(sorted(words.union(NOUNS, ADJECTIVES, *VERBS)))


@functools.cache
def _roles() -> list[Slot]:
    return [parse_slot(line) for line in ROLES]


def _like_a_tool(name: str, verbs: tuple[str, ...], noun: str) -> bool:
    """Whether a tool of the corpus has that name or is described by one of the verbs and the noun together."""
    return any(name == tool or (noun in words and not words.isdisjoint(verbs)) for tool, words in _tools())


@functools.cache
def _tools() -> tuple[tuple[str, frozenset[str]], ...]:
    """Names, and the words of names and descriptions."""
    return tuple(
        (frame.name, frozenset(re.findall(r"[a-z]+", " ".join((frame.name, *frame.descriptions)).lower())))
        for unseen in (False, True)
        for frame in frames(unseen=unseen)
    )


_ARTICLE = re.compile(r"\ba (?=[aeio]|um|ur)")
_QUESTION_WORDS = ("how", "on", "what", "when", "where", "whether", "which", "who", "whose")
_CLAUSES = (" ({1}: {0})", " [{1} = {0}]")
_APPOSITIONS = (_CLAUSES[0], " with {0} as the {1}", " with {1} {0}", " with the {1} being {0}")
_ABOUT = (
    "{verb} a {noun}",
    "{verb} the {adjective} {noun}",
    "use this to {verb} a {noun}",
    "to {verb} some {noun}",
    "{verb} one {noun} for somebody",
)
_NOTES = (
    "please {verb} the {adjective} {noun}{rest}.",
    "{verb} my {adjective} {noun}{rest}.",
    "could somebody {verb} our {noun}{rest}?",
    "it is time to {verb} the {noun}{rest}.",
    "we have to {verb} this {noun}{rest}.",
    "my neighbor asked us to {verb} a {adjective} {noun}{rest}.",
    "they would like to {verb} that {noun}{rest}, please.",
    "do not forget to {verb} the {noun}{rest}.",
    "is there a way to {verb} a {adjective} {noun}{rest}?",
    "you should {verb} her {noun}{rest}.",
    "there is a {adjective} {noun} for us to {verb}{rest}.",
    "what about this {noun}? We must {verb} it{rest}.",
    "I was told to {verb} his {adjective} {noun}{rest}, so go on.",
    "let us {verb} another {noun}{rest}.",
    "the {noun} is what I need you to {verb}{rest}.",
    "can they {verb} every {adjective} {noun}{rest}? Tell me.",
    "how do we {verb} their {noun}{rest}?",
    "go and {verb} one more {noun}{rest}.",
    "somebody wrote: {verb} the {adjective} {noun}{rest}.",
    "{adjective} or not, {verb} that {noun}{rest} for us.",
)
_AFTERTHOUGHTS = (" That is{}.", " It should be{}.", " And{}.", " All of it{}.", " Make that{}, please.")
