"""A fault that appears only at scale: every pair is sound, and the whole is slow. Pure but for ``measure``.

First halves, at once: a group that is slow is split again. Where both halves are sound, the fault needs the size, so
parts are left out of the whole instead: leaving out the culprit cures it (A. Zeller's delta debugging, TSE 28, 2002).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Group = tuple[int, ...]
Measure = Callable[[Sequence[Group]], Sequence[bool]]
"""Runs a collective in every group, all groups at once, and says which were slow."""

LOOKS = 3
PARTS = 8
"""Left out one after another: each test keeps seven eighths of the size."""


@dataclass(frozen=True)
class AtScale:
    """``culprits`` are nodes without which the whole is sound; with none, the smallest slow ``group`` is all that is
    known. ``sound_size``: the largest group that was sound."""

    culprits: Group
    group: Group
    sound_size: int


def bisect(nodes: Sequence[int], measure: Measure) -> AtScale | None:
    """Who makes the whole slow; None when it is not slow in two of three looks."""
    group = tuple(nodes)
    if not _confirmed([group], measure)[0]:
        return None
    sound_size = 1
    while len(group) > 2:
        halves = [group[: len(group) // 2], group[len(group) // 2 :]]
        slow = [half for half, found in zip(halves, _confirmed(halves, measure), strict=True) if found]
        if len(slow) != 1:
            # Both: more than one culprit, or one that both share. None: the fault needs the size.
            sound_size = max(sound_size, 0 if slow else len(halves[1]))
            break
        group = slow[0]
    return AtScale(_without(group, measure), group, sound_size)


def _without(group: Group, measure: Measure) -> Group:
    """Nodes whose absence alone cures ``group``; empty where none does, or where any does: then it is the size."""
    suspects = group
    while len(suspects) > 1:
        size = -(-len(suspects) // PARTS)
        parts = [suspects[start : start + size] for start in range(0, len(suspects), size)]
        cures = [part for part in parts if _cures(part, group, measure)]
        if len(cures) != 1:
            return suspects if suspects != group else ()
        suspects = cures[0]
    return suspects


def _cures(part: Group, group: Group, measure: Measure) -> bool:
    left = tuple(node for node in group if node not in part)
    return len(left) > 1 and not _confirmed([left], measure)[0]


def _confirmed(groups: Sequence[Group], measure: Measure) -> list[bool]:
    """Slow in two of three looks: congestion passes."""
    looks = [measure(groups) for _ in range(LOOKS)]
    return [sum(found) * 2 > LOOKS for found in zip(*looks, strict=True)]
