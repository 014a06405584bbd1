from collections import Counter

import pytest

from seatrial.data.synthetic.frames import Frame, parse_frames, parse_slot
from tests.data.synthetic.grammar import all_frames

FRAMES = all_frames()


def test_there_are_enough_frames_of_either_sort_and_no_two_are_alike() -> None:
    unseen = [frame for frame in FRAMES if frame.unseen]
    assert len(FRAMES) >= 40
    assert len(unseen) >= 10
    assert len(FRAMES) - len(unseen) >= 30
    names = Counter(frame.name for frame in FRAMES)
    descriptions = Counter(text for frame in FRAMES for text in frame.descriptions)
    templates = Counter(template.text for frame in FRAMES for template in (*frame.templates, *frame.held_templates))
    assert max(names.values()) == max(descriptions.values()) == max(templates.values()) == 1


def test_all_types_occur() -> None:
    assert {slot.kind.name for frame in FRAMES for slot in frame.slots} >= {
        "int",
        "number",
        "bool",
        "enum",
        "list",
        "date",
    }


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: frame.name)
def test_a_frame_can_be_asked_for_with_any_slot_left_out(frame: Frame) -> None:
    assert len(frame.templates) >= 5
    assert len(frame.held_templates) >= 2
    assert any(slot.kind.open for slot in frame.slots if slot.required)
    for slot in frame.slots:
        assert (slot.kind.name == "bool") is ("{}" not in slot.phrases[0])
        for templates in (frame.templates, frame.held_templates):
            assert any(slot.name not in template.named for template in templates), slot.name


def test_the_notation() -> None:
    (frame,) = parse_frames(
        """
+ feed_cat: Feed a cat. / Give a cat its food.
  ^cat! first: name of the cat | {}
  wet bool: wet food | with wet food | with dry food
  gives bowls int 2 60: {} bowls were filled.
  > Feed{*}.
  ~ My {cat} is hungry{*}.
""",
        "home",
    )
    cat, wet = frame.slots
    assert (cat.required, cat.first, wet.required, wet.phrases) == (
        True,
        True,
        False,
        ("with wet food", "with dry food"),
    )
    assert frame.descriptions == ("Feed a cat.", "Give a cat its food.")
    assert frame.templates[0].pieces == ("Feed", "*", ".")
    assert frame.held_templates[0].named == {"cat"}
    assert not frame.unseen


@pytest.mark.parametrize("line", ["cat first", "cat! colour: name | {}", "cat! first: name of the cat"])
def test_bad_slots_are_refused(line: str) -> None:
    with pytest.raises(ValueError, match="not a"):
        parse_slot(line)


@pytest.mark.parametrize("request_line", ["> Feed {dog}{*}.", "> Feed the cat.", "> {cat} is hungry{*}."])
def test_bad_templates_are_refused(request_line: str) -> None:
    table = f"+ feed_cat: Feed a cat.\n  cat! first: name | {{}}\n  gives n int 2 60: {{}}.\n  {request_line}\n"
    with pytest.raises(ValueError, match=r"lacks"):
        parse_frames(table, "home")
