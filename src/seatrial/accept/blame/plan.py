"""Who plays whom. Pure; for any number of nodes.

A tournament by the circle method lets every node meet every other once in n - 1 rounds of n / 2 disjoint pairs. Many
nodes play ceil(log2 n) + 3 of these rounds: then each has met enough different partners for a median to be its own.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

Pair = tuple[int, int]
Round = tuple[Pair, ...]

WHOLE_UP_TO = 64
"""Nodes that all meet: 63 rounds. Among more, a path between two nodes that did not meet goes untested."""


def tournament(nodes: Sequence[int], seed: int = 0) -> tuple[Round, ...]:
    """Rounds of disjoint pairs. With an odd number, one node rests in each round.

    Nodes are shuffled and rounds drawn by ``seed``, so that partners do not follow the order of racks.
    """
    order: list[int | None] = [*nodes]
    if len(order) < 2:
        return ()
    draw = random.Random(seed)
    draw.shuffle(order)
    if len(order) % 2:
        order.append(None)
    rounds = list(range(len(order) - 1))
    if len(nodes) > WHOLE_UP_TO:
        rounds = sorted(draw.sample(rounds, math.ceil(math.log2(len(nodes))) + 3))
    return tuple(_circle(order, turn) for turn in rounds)


def _circle(order: Sequence[int | None], turn: int) -> Round:
    """One seat stays, the others move on by ``turn``; who faces each other plays."""
    fixed, moving = order[0], [*order[1:]]
    seats = [fixed, *moving[turn:], *moving[:turn]]
    half = len(seats) // 2
    faced = zip(seats[:half], reversed(seats[half:]), strict=True)
    return tuple((min(a, b), max(a, b)) for a, b in faced if a is not None and b is not None)


@dataclass(frozen=True)
class Confirmation:
    """One round of the second pass: suspects against known-good nodes, and good ones against each other as controls."""

    suspects: Round
    controls: Round

    @property
    def round(self) -> Round:
        return (*self.suspects, *self.controls)


def confirmations(suspects: Sequence[int], good: Sequence[int], partners: int) -> tuple[Confirmation, ...]:
    """Every suspect meets ``partners`` different good nodes, as far as there are so many; none plays twice at once."""
    found = []
    for turn in range(min(partners, len(good))):
        for start in range(0, len(suspects), len(good)):
            some = suspects[start : start + len(good)]
            rotated = [good[(index + start + turn) % len(good)] for index in range(len(good))]
            idle = rotated[len(some) :]
            found.append(
                Confirmation(
                    suspects=tuple(zip(some, rotated, strict=False)),
                    controls=tuple(zip(idle[::2], idle[1::2], strict=False)),
                )
            )
    return tuple(found)
