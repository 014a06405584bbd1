"""Values that nobody can know by heart: made-up names, codes, numbers and dates, in three disjoint universes.

A universe owns a string or a number if the CRC-32 of its text says so; in names each made-up word is owned. So a value
of one universe never turns up in another, though all are spelt from the same letters: chance separates them, not
style, and only copying carries over.
"""

import datetime
import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any
from zlib import crc32


class Universe(StrEnum):
    """Who may use a value: training rows, rows with unseen values, or the pre-training documents."""

    TRAIN = "train"
    UNSEEN = "unseen"
    TEXTS = "texts"


OWNERS = (Universe.TRAIN, Universe.UNSEEN, Universe.TEXTS, Universe.TEXTS)


def owner(text: str) -> Universe:
    """The one universe that may use this text, in capitals or not."""
    return OWNERS[crc32(text.lower().encode()) & 3]


@dataclass(frozen=True)
class Kind:
    """What a slot holds. ``name`` is a key of ``STRINGS``, or int, number, bool, enum or list (of ``item``)."""

    name: str
    low: int = 0
    high: int = 0
    options: tuple[str, ...] = ()
    item: "Kind | None" = None

    @classmethod
    def parse(cls, text: str) -> "Kind":
        """``int 2 60``, ``number 1 90``, ``enum red green``, ``list place``, ``bool`` or the name of a string kind.

        Raises:
            ValueError: none of these.
        """
        name, *rest = text.split()
        if name in ("int", "number"):
            return cls(name, low=int(rest[0]), high=int(rest[1]))
        if name == "enum":
            return cls(name, options=tuple(rest))
        if name == "list":
            return cls(name, item=cls.parse(" ".join(rest)))
        if (name == "bool" or name in STRINGS) and not rest:
            return cls(name)
        raise ValueError(f"not a kind of value: {text!r}")

    @property
    def open(self) -> bool:
        """Whether the values are too many to be learnt by heart, and so belong to universes."""
        return self.name not in ("bool", "enum")


def draw(kind: Kind, rng: random.Random, universe: Universe) -> Any:
    """A value of this kind from this universe. Numbers are never integral, so that their type shows."""
    if kind.name == "int":
        return _integer(rng, kind, universe)
    if kind.name == "number":
        return _tenths(rng, kind, universe)
    if kind.name == "bool":
        return rng.random() < 0.5
    if kind.name == "enum":
        return rng.choice(kind.options)
    if kind.item is not None:
        items = [draw(kind.item, rng, universe) for _ in range(rng.choice((2, 2, 3)))]
        return list(dict.fromkeys(items))
    return STRINGS[kind.name](rng, universe)


def surface(value: Any) -> str:
    """How a sentence writes a value: strings and numbers as they are, lists as ``a, b and c``."""
    if isinstance(value, list):
        *most, last = [surface(item) for item in value]
        return f"{', '.join(most)} and {last}" if most else last
    return str(value).lower() if isinstance(value, bool) else str(value)


def _integer(rng: random.Random, kind: Kind, universe: Universe) -> int:
    while True:
        value = rng.randint(kind.low, kind.high)
        if owner(str(value)) is universe:
            return value


def _tenths(rng: random.Random, kind: Kind, universe: Universe) -> float:
    while True:
        value = (rng.randrange(kind.low, kind.high) * 10 + rng.randint(1, 9)) / 10
        if owner(str(value)) is universe:
            return value


def _words(text: str) -> list[str]:
    return text.split()


_ONSETS = _words("b d f g h j k l m n p r s t v w z br dr fl gr kl pl st tr sh th")
_VOWELS = _words("a e i o u a e i o ai ea ou")
_CODAS = ["", "", "", "n", "r", "l", "s", "m", "k", "t", "x", "nd", "rt"]
SYLLABLES = [onset + vowel for onset in _ONSETS for vowel in _VOWELS]
_DIGITS = "0123456789"
_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"


def _owned(make: Callable[[random.Random], str]) -> Callable[[random.Random, Universe], str]:
    """Draw from ``make`` until the universe owns what it made."""

    def drawn(rng: random.Random, universe: Universe) -> str:
        while True:
            text = make(rng)
            if owner(text) is universe:
                return text

    return drawn


@_owned
def word(rng: random.Random) -> str:
    """A made-up word in lower case: two or three syllables."""
    pick = rng.choice
    middle = pick(SYLLABLES) if rng.random() < 0.3 else ""
    return pick(SYLLABLES) + middle + pick(SYLLABLES) + pick(_CODAS)


def _proper(rng: random.Random, universe: Universe) -> str:
    return word(rng, universe).capitalize()


@_owned
def _digits(rng: random.Random) -> str:
    return "".join(rng.choices(_DIGITS, k=rng.choice((3, 4, 4, 5))))


@_owned
def _code(rng: random.Random) -> str:
    letters = "".join(rng.choices(_LETTERS, k=rng.choice((1, 2, 3))))
    digits = "".join(rng.choices(_DIGITS, k=rng.choice((3, 4, 5))))
    return rng.choice(
        (f"{letters}-{digits}", f"{letters}{digits}", f"{digits}-{letters}", f"{letters.lower()}{digits}")
    )


@_owned
def _date(rng: random.Random) -> str:
    return (datetime.date(2025, 1, 1) + datetime.timedelta(days=rng.randrange(1460))).isoformat()


@_owned
def _time(rng: random.Random) -> str:
    return f"{rng.randrange(24):02d}:{rng.randrange(0, 60, 5):02d}"


def _place(rng: random.Random, universe: Universe) -> str:
    name = _proper(rng, universe)
    shape = rng.random()
    if shape < 0.1:
        return f"{rng.choice(('Port', 'New', 'Lake', 'Upper', 'Mount'))} {name}"
    if shape < 0.2:
        return f"{name} {rng.choice(('Bay', 'Hill', 'Bridge', 'Falls', 'Valley'))}"
    return name


def _person(rng: random.Random, universe: Universe) -> str:
    return f"{_proper(rng, universe)} {_proper(rng, universe)}"


def _brand(rng: random.Random, universe: Universe) -> str:
    """A product: a made-up word, often with a model number or another word behind it."""
    shape = rng.random()
    if shape < 0.35:
        return f"{_proper(rng, universe)} {_digits(rng, universe)}"
    if shape < 0.6:
        return f"{_proper(rng, universe)} {_proper(rng, universe)}"
    return _proper(rng, universe)


def _email(rng: random.Random, universe: Universe) -> str:
    return f"{word(rng, universe)}@{word(rng, universe)}.{rng.choice(('com', 'org', 'net'))}"


def _phone(rng: random.Random, universe: Universe) -> str:
    return f"+{rng.randrange(10, 99)} {_digits(rng, universe)} {_digits(rng, universe)}"


_ADJECTIVES = _words("""
    blue old quiet golden broken early second spare green heavy little silver open late wooden hidden long bright new
    small empty red warm white final clean
""")
_NOUNS = _words("""
    garden window letter river boat ticket folder lamp bridge winter meeting kitchen story paper summer box engine
    forest train island table road harbor jacket cake bicycle key piano coffee report
""")
_VERBS = _words("bring call check move send water fetch paint fix return sign open copy count clean sort")


@_owned
def _sentence(rng: random.Random) -> str:
    """A short instruction in common words."""
    adjective, noun, verb = rng.choice(_ADJECTIVES), rng.choice(_NOUNS), rng.choice(_VERBS)
    ending = rng.choice(
        ("", "", " today", " first", " again", " before noon", " for the team", " by the " + rng.choice(_NOUNS))
    )
    return f"{verb} the {adjective} {noun}{ending}"


def _title(rng: random.Random, universe: Universe) -> str:
    """A title in lower or upper case: a common word and a made-up one, which alone is owned."""
    words = rng.choice(_ADJECTIVES), word(rng, universe), rng.choice(_NOUNS)
    title = " ".join(words[:2] if rng.random() < 0.4 else words[1:] if rng.random() < 0.5 else words)
    return title.title() if rng.random() < 0.5 else title


STRINGS: dict[str, Callable[[random.Random, Universe], str]] = {
    "word": word,
    "first": _proper,
    "person": _person,
    "place": _place,
    "brand": _brand,
    "title": _title,
    "sentence": _sentence,
    "id": _code,
    "digits": _digits,
    "email": _email,
    "phone": _phone,
    "date": _date,
    "time": _time,
}
