"""Function-calling conversations made on the spot: the gold calls first, the words after."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from zlib import crc32

from seatrial.data.conversation import Conversation, Message, Tool, ToolCall
from seatrial.data.synthetic.frames import Frame, frames
from seatrial.data.synthetic.request import MASKED_SHARE, Offer, Request, ask, joined, show
from seatrial.data.synthetic.values import Universe, draw, surface

SOURCE = "synthetic"


class Split(StrEnum):
    """Rows to train on, and four ways in which a row can be new: every other split differs in one respect only."""

    TRAIN = "train"
    IID = "iid"
    UNSEEN_VALUES = "unseen_values"
    UNSEEN_PHRASINGS = "unseen_phrasings"
    UNSEEN_TOOLS = "unseen_tools"


@dataclass(frozen=True)
class Mix:
    """Weights of the kinds of rows. A weight of 0 leaves a kind out."""

    single: float = 0.22
    multiple: float = 0.23
    parallel: float = 0.20
    irrelevant: float = 0.15
    missing_argument: float = 0.10
    multi_turn: float = 0.10


@dataclass(frozen=True)
class _Source:
    """Where the parts of a row come from: that is all in which splits differ."""

    frames: tuple[Frame, ...]
    masked: float
    universe: Universe
    held: bool


def corpus(
    rows: int,
    *,
    seed: int,
    split: Split,
    mix: Mix = Mix(),
    tools: int | None = None,
    masked: float = MASKED_SHARE,
    start: int = 0,
) -> Iterator[Conversation]:
    """Rows ``start`` to ``start + rows`` of one split. Row i depends on the arguments but ``rows`` and on i alone.

    ``category`` is the kind: a field of :class:`Mix`. No evaluation row repeats a request of a training row with
    the same seed or another one. ``tools`` keeps that many frames, spread over the domains: fewer tools are learnt
    from fewer rows. ``masked`` is the share of rows whose tools bear made-up names.
    """
    source = _Source(
        frames=_spread(frames(unseen=split is Split.UNSEEN_TOOLS), tools),
        masked=masked,
        universe=Universe.UNSEEN if split is Split.UNSEEN_VALUES else Universe.TRAIN,
        held=split is Split.UNSEEN_PHRASINGS,
    )
    kinds = tuple(vars(mix))
    weights = tuple(vars(mix).values())
    for index in range(start, start + rows):
        rng = random.Random(f"{seed}/{split}/{index}")
        kind = rng.choices(kinds, weights)[0]
        while True:
            messages, offered = _MAKERS[kind](source, rng)
            if len({tool.name for tool in offered}) == len(offered) and belongs(messages, split):
                break
        yield Conversation(f"{split}-{seed}-{index}", SOURCE, messages, offered, kind)


def _spread(all_frames: tuple[Frame, ...], count: int | None) -> tuple[Frame, ...]:
    count = len(all_frames) if count is None else min(count, len(all_frames))
    return tuple(all_frames[i * len(all_frames) // count] for i in range(count))


def belongs(messages: tuple[Message, ...], split: Split) -> bool:
    """Training and iid rows come from one distribution; a hash of the request says which of the two may have it."""
    if split not in (Split.TRAIN, Split.IID):
        return True
    request = "\n".join(message.content for message in messages if message.role == "user")
    return (crc32(request.encode()) % 8 == 0) is (split is Split.IID)


_Row = tuple[tuple[Message, ...], tuple[Tool, ...]]


def _single(source: _Source, rng: random.Random) -> _Row:
    return _one_call(source, rng, distractors=rng.choice((0, 1)))


def _multiple(source: _Source, rng: random.Random) -> _Row:
    return _one_call(source, rng, distractors=rng.choice((1, 1, 1, 2, 2, 3)))


def _one_call(source: _Source, rng: random.Random, distractors: int) -> _Row:
    (gold,), others = _offers(source, rng, 1, distractors)
    request = ask(gold, rng, source.universe, held=source.held)
    return (_user(request.text, rng), _calls([(gold, request)])), _shuffled([gold, *others], rng)


def _parallel(source: _Source, rng: random.Random) -> _Row:
    """Two or three calls, of one tool or of several, in the order of the request."""
    count = rng.choice((2, 2, 2, 3))
    different = rng.random() < 0.5
    golds, others = _offers(source, rng, count) if different else _offers(source, rng, 1, distractors=1)
    steps = [
        (gold, ask(gold, rng, source.universe, held=source.held)) for gold in (golds if different else golds * count)
    ]
    first, *more = (request.text for _, request in steps)
    text = " ".join([first, *(joined(rng.choice(_JOINTS), sentence) for sentence in more)])
    return (_user(text, rng), _calls(steps)), _shuffled([*golds, *others], rng)


def _irrelevant(source: _Source, rng: random.Random) -> _Row:
    """The tool that the request is for is not among those on offer."""
    (wanted,), others = _offers(source, rng, 1, rng.choice((1, 1, 2, 2, 3)))
    request = ask(wanted, rng, source.universe, held=source.held)
    return (_user(request.text, rng), _says(rng.choice(_REFUSALS))), _shuffled(others, rng)


def _missing_argument(source: _Source, rng: random.Random) -> _Row:
    """A required value is not in the request, and the answer asks for it in the words of the schema."""
    while True:
        (gold,), others = _offers(source, rng, 1, rng.choice((0, 0, 1, 2)))
        missing = rng.choice([slot for slot in gold.shown if gold.requires(slot)])
        request = ask(gold, rng, source.universe, held=source.held, missing=missing)
        if request.open:
            break
    question = rng.choice(_QUESTIONS).format(gold.describes(missing))
    return (_user(request.text, rng), _says(question)), _shuffled([gold, *others], rng)


def _multi_turn(source: _Source, rng: random.Random) -> _Row:
    """A call, its result, an answer; then, more often than not, another call that the first one helps to fill."""
    (gold,), others = _offers(source, rng, 1, rng.choice((0, 1)))
    request = ask(gold, rng, source.universe, held=source.held)
    result = draw(gold.frame.result.kind, rng, source.universe)
    answer = rng.choice(gold.frame.result.phrases).replace("{}", surface(result))
    messages = [
        _user(request.text, rng),
        _calls([(gold, request)]),
        Message("tool", json.dumps({gold.frame.result.name: result}), tool_call_id="call_0", name=gold.tool.name),
        _says(answer),
    ]
    if rng.random() < 0.6:
        follow_up = _change(gold, request, source, rng)
        messages += [Message("user", follow_up.text), _calls([(gold, follow_up)], first_id=1)]
    return tuple(messages), _shuffled([gold, *others], rng)


def _change(gold: Offer, before: Request, source: _Source, rng: random.Random) -> Request:
    """The same again with one value changed, named by its description in the schema."""
    slots = [slot for slot in gold.shown if slot.name in before.values and slot.kind.open]
    slot = rng.choice(slots)
    value = draw(slot.kind, rng, source.universe)
    text = rng.choice(_FOLLOW_UPS).format(description=gold.describes(slot), value=surface(value))
    return replace(before, text=text, values=before.values | {slot.name: value})


_MAKERS = {
    "single": _single,
    "multiple": _multiple,
    "parallel": _parallel,
    "irrelevant": _irrelevant,
    "missing_argument": _missing_argument,
    "multi_turn": _multi_turn,
}


def _offers(source: _Source, rng: random.Random, golds: int, distractors: int = 0) -> tuple[list[Offer], list[Offer]]:
    """Different frames, all masked or none, and all drawn alike; distractors are often of the first gold's domain."""
    masked = rng.random() < source.masked
    chosen = rng.sample(source.frames, golds)
    for _ in range(distractors):
        pool = [frame for frame in source.frames if frame not in chosen]
        near = [frame for frame in pool if frame.domain == chosen[0].domain]
        chosen.append(rng.choice(near if near and rng.random() < 0.4 else pool))
    most_optional = 2 if len(chosen) == 1 else 1
    offers = [show(frame, rng, masked=masked, most_optional=most_optional) for frame in chosen]
    return offers[:golds], offers[golds:]


def _shuffled(offers: list[Offer], rng: random.Random) -> tuple[Tool, ...]:
    tools = [o.tool for o in offers]
    rng.shuffle(tools)
    return tuple(tools)


def _user(text: str, rng: random.Random) -> Message:
    """The request, at times with a sentence around it that asks for nothing."""
    chance = rng.random()
    if chance < 0.08:
        text = f"{rng.choice(_OPENINGS)} {text}"
    elif chance < 0.16:
        text = f"{text} {rng.choice(_CLOSINGS)}"
    return Message("user", text)


def _says(text: str) -> Message:
    return Message("assistant", text)


def _calls(steps: list[tuple[Offer, Request]], first_id: int = 0) -> Message:
    calls = tuple(
        ToolCall(gold.tool.name, request.arguments(gold), f"call_{number}")
        for number, (gold, request) in enumerate(steps, first_id)
    )
    return Message("assistant", tool_calls=calls)


_OPENINGS = ("Hello!", "Good morning.", "Hi there.", "I hope you are well.", "I have something for you to do.")
_CLOSINGS = ("Thank you!", "Thanks.", "That is all for now.", "I am in a hurry.", "It is important to me.")
_JOINTS = ("Also,", "Then", "And", "After that,", "Besides,", "One more thing:", "That is not all.")
_REFUSALS = ("None of my tools can do that.", "I have no tool for that.")
_QUESTIONS = ("I still need this: {}.", "Please tell me this: {}.")
_FOLLOW_UPS = (
    "Now the same with another {description}: {value}.",
    "Do it again, but change this: {description}, {value}.",
    "Once more, please. Only this is new: {description}, {value}.",
)
