"""Layers of one parent that read the same input, computed as one product; the model's own code does not notice.

Shapes: I input width, O output width (all members of a group side by side).
"""

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

# Layers that are called one after another with the same input, in Hugging Face's names.
SAME_INPUT = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))


class Group(Protocol):
    """What computes several layers at once."""

    members: tuple[str, ...]
    # Between the calls of the first and the last member: the input, all outputs, and how many are still to come.
    held: tuple[Tensor, tuple[Tensor, ...], int] | None

    def outputs(self, x: Tensor) -> tuple[Tensor, ...]:
        """[..., I] -> [..., O of the member] for each member."""
        ...


class Member(nn.Module):
    """Stands where a plain layer stood. The first member called computes the whole group; each takes its own part."""

    group: Group

    def __init__(self, group: Group, index: int) -> None:
        super().__init__()
        self.index = index
        # Not registered as a submodule: the group is registered once, at the parent.
        object.__setattr__(self, "group", group)

    def forward(self, x: Tensor) -> Tensor:
        """[..., I] -> [..., O of this member]."""
        group = self.group
        if group.held is None or group.held[0] is not x:
            group.held = (x, group.outputs(x), len(group.members))
        _, parts, waiting = group.held
        group.held = None if waiting == 1 else (x, parts, waiting - 1)
        return parts[self.index]


def take_places(parent: nn.Module, group: Group) -> None:
    """Put a group where its members stood in ``parent``; one member alone is replaced by the group itself."""
    assert isinstance(group, nn.Module)
    if len(group.members) == 1:
        setattr(parent, group.members[0], group)
        return
    parent.add_module("_".join(group.members), group)
    for index, name in enumerate(group.members):
        setattr(parent, name, Member(group, index))


def joined(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """What the members have each, as one, by default rows below rows; of one member, its own memory."""
    return tensors[0] if len(tensors) == 1 else torch.cat(list(tensors), dim)


def same_input(paths: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Split layers into those computed together: the name of their parent and their own last names."""
    by_parent: dict[str, list[str]] = {}
    for path in paths:
        parent, _, last = path.rpartition(".")
        by_parent.setdefault(parent, []).append(last)
    for parent, names in by_parent.items():
        rest = list(names)
        for family in SAME_INPUT:
            if together := [name for name in family if name in rest]:
                rest = [name for name in rest if name not in together]
                yield parent, together
        yield from ((parent, [name]) for name in rest)
