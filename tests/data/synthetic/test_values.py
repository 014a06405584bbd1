import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.data.synthetic.frames import Slot, frames
from seatrial.data.synthetic.values import STRINGS, Kind, Universe, draw, owner, surface


def draws(kind: Kind, universe: Universe, count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [surface(draw(kind, rng, universe)) for _ in range(count)]


@pytest.mark.parametrize("name", [*STRINGS, "int 2 9000", "number 1 900"])
def test_universes_share_no_value(name: str) -> None:
    kind = Kind.parse(name)
    train, unseen, texts = (set(draws(kind, universe, 400)) for universe in Universe)
    assert len(train) > 40
    assert not train & unseen
    assert not train & texts
    assert not unseen & texts


@given(st.integers(), st.sampled_from(list(Universe)))
def test_a_made_up_word_belongs_to_the_universe_that_drew_it(seed: int, universe: Universe) -> None:
    (word,) = draws(Kind("word"), universe, 1, seed)
    assert owner(word) is universe


@pytest.mark.parametrize("universe", list(Universe))
def test_every_number_of_the_frames_has_choices_in_every_universe(universe: Universe) -> None:
    slots = [
        slot for unseen in (False, True) for frame in frames(unseen=unseen) for slot in (*frame.slots, frame.result)
    ]
    ranges = {slot.kind for slot in slots if slot.kind.name in ("int", "number")}
    assert ranges
    for kind in ranges:
        assert len(set(draws(kind, universe, 100))) >= 4, kind


def test_numbers_show_their_type_and_have_one_spelling() -> None:
    for text in draws(Kind.parse("number 1 9000"), Universe.TRAIN, 1000):
        assert text.count(".") == 1
        assert len(text.partition(".")[2]) == 1
        assert text[-1] != "0"


@pytest.mark.parametrize("text", ["colour", "bool yes", "date now", "list", "list colour"])
def test_unknown_kinds_are_refused(text: str) -> None:
    with pytest.raises((ValueError, IndexError)):
        Kind.parse(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [("Kelmora", "Kelmora"), (12, "12"), (3.5, "3.5"), (True, "true"), (["a"], "a"), (["a", "b", "c"], "a, b and c")],
)
def test_surfaces(value: object, text: str) -> None:
    assert surface(value) == text


def test_slots_know_whether_they_are_open() -> None:
    slot = Slot("x", Kind.parse("list int 2 60"), True, (), ())
    assert slot.kind.open
    assert not Kind.parse("enum a b").open
