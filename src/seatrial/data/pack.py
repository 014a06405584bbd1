"""Packing: which rows share a fixed-length micro-batch, which packs an optimizer step consumes, and their tensors.

The plan is a function of the row lengths, the pack length, the seed and the epoch, never of the number of
processes, so the learning curve does not depend on the size of the cluster and the position in the data is one
number: the optimizer step.

Shapes: N rows in the dataset, T tokens in a pack.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from seatrial.errors import UsageError

if TYPE_CHECKING:
    import torch

    from seatrial.data.render import Rendered

IGNORED = -100
"""Target of a token that carries no loss; the value ``torch.nn.functional.cross_entropy`` ignores by default."""

Rows = tuple[int, ...]
"""Indices of the rows that one pack holds, in the order they stand in it. Empty: a pack of padding, weight zero."""


@dataclass(frozen=True)
class PackPlan:
    """One epoch: every row stands in exactly one pack."""

    packs: tuple[Rows, ...]
    pack_length: int
    tokens: int

    @property
    def efficiency(self) -> float:
        """Share of all positions that hold a row's token rather than padding."""
        return self.tokens / (len(self.packs) * self.pack_length) if self.packs else 0.0


def plan_epoch(
    lengths_N: Sequence[int] | npt.NDArray[np.integer], pack_length: int, *, seed: int, epoch: int
) -> PackPlan:
    """Best-fit decreasing bin packing (D. S. Johnson, 1973), then the packs in a random order.

    Rows of equal length are interchangeable to the packer, and the seed decides which of them goes where; the
    number of packs is therefore the same in every epoch.

    Raises:
        UsageError: a row is empty or longer than a pack.
    """
    lengths = np.asarray(lengths_N, dtype=np.int64)
    if lengths.size and not 0 < lengths.min() <= lengths.max() <= pack_length:
        row = int(np.flatnonzero((lengths <= 0) | (lengths > pack_length))[0])
        raise UsageError(
            f"row {row} has {lengths[row]} tokens; a pack holds 1 to {pack_length}: drop it or raise data.length"
        )
    random = np.random.default_rng([seed, epoch])
    shuffled = random.permutation(lengths.size)
    decreasing = shuffled[np.argsort(-lengths[shuffled], kind="stable")]
    packs = _best_fit(decreasing.tolist(), lengths[decreasing].tolist(), pack_length)
    order = random.permutation(len(packs))
    return PackPlan(tuple(tuple(packs[i]) for i in order), pack_length, int(lengths.sum()))


def _best_fit(rows: list[int], lengths: list[int], pack_length: int) -> list[list[int]]:
    """Put each row, in the order given, into the pack with the least room that still takes it.

    Packs are grouped by their free room. ``rooms`` has bit ``r`` set when some pack has room ``r``, so the best fit
    for a length is the lowest set bit at or above it: one shift and one mask on a big integer.
    """
    packs: list[list[int]] = []
    with_room: list[list[int]] = [[] for _ in range(pack_length + 1)]
    rooms = 0
    for row, length in zip(rows, lengths, strict=True):
        if candidates := rooms >> length:
            room = length + (candidates & -candidates).bit_length() - 1
            pack = with_room[room].pop()
            if not with_room[room]:
                rooms ^= 1 << room
        else:
            room, pack = pack_length, len(packs)
            packs.append([])
        packs[pack].append(row)
        with_room[room - length].append(pack)
        rooms |= 1 << (room - length)
    return packs


@dataclass(frozen=True, eq=False)
class PackStream:
    """Which packs each optimizer step consumes: the epochs one after another, ``packs_per_step`` at a time.

    Without ``epochs`` the stream never ends, and a step may take the last packs of one epoch and the first of the
    next. With ``epochs`` the last step is filled up with empty packs.
    """

    lengths_N: npt.NDArray[np.integer]
    pack_length: int
    seed: int
    packs_per_step: int
    epochs: int | None = None
    _plans: OrderedDict[int, PackPlan] = field(default_factory=OrderedDict, init=False, repr=False)

    def plan(self, epoch: int) -> PackPlan:
        """The plan of ``epoch`` (from 0); the two used last are kept."""
        if epoch not in self._plans:
            self._plans[epoch] = plan_epoch(self.lengths_N, self.pack_length, seed=self.seed, epoch=epoch)
            if len(self._plans) > 2:
                self._plans.popitem(last=False)
        return self._plans[epoch]

    @property
    def packs_per_epoch(self) -> int:
        return len(self.plan(0).packs)

    @property
    def steps(self) -> int | None:
        """Optimizer steps until the epochs are used up; None for an endless stream."""
        if self.epochs is None:
            return None
        return -(-self.epochs * self.packs_per_epoch // self.packs_per_step)

    def step_packs(self, step: int) -> tuple[Rows, ...]:
        """The ``packs_per_step`` packs of optimizer step ``step`` (from 0), whoever computes them."""
        first = step * self.packs_per_step
        return tuple(self._pack(position) for position in range(first, first + self.packs_per_step))

    def _pack(self, position: int) -> Rows:
        epoch, index = divmod(position, self.packs_per_epoch)
        return () if self.epochs is not None and epoch >= self.epochs else self.plan(epoch).packs[index]


def share(packs: Sequence[Rows], rank: int, world_size: int) -> list[Rows]:
    """What one rank computes of a step: every ``world_size``-th pack, and as many for every rank.

    Where the packs do not divide evenly, the list is filled up with empty packs, so that all ranks run the same
    number of micro-batches and thus the same collectives.
    """
    mine = list(packs[rank::world_size])
    return mine + [()] * (-(-len(packs) // world_size) - len(mine))


@dataclass(frozen=True, eq=False)
class Pack:
    """One micro-batch. Several documents lie side by side; attention and positions know their borders.

    ``targets_T[t]`` is the token that ``ids_T[t]`` predicts: the next one of the same document when that one is
    trained, else -100. ``positions_T`` restart at 0 in each document. ``cu_seqlens`` (int32) holds the start of each
    document and the end of the last; padding counts as a final document. ``tokens`` are those that are no padding.
    """

    ids_T: "torch.Tensor"
    targets_T: "torch.Tensor"
    positions_T: "torch.Tensor"
    cu_seqlens: "torch.Tensor"
    max_seqlen: int
    trained_tokens: int
    tokens: int


def pack_tensors(rows: Sequence["Rendered"], pack_length: int, pad_id: int) -> Pack:
    """Lay ``rows`` side by side on the CPU. Without rows: nothing but padding, zero trained tokens.

    Raises:
        ValueError: the rows do not fit into ``pack_length``.
    """
    import torch

    tokens = sum(len(row.ids) for row in rows)
    if tokens > pack_length:
        raise ValueError(f"{tokens} tokens do not fit into a pack of {pack_length}")
    ids = np.full(pack_length, pad_id, dtype=np.int64)
    targets = np.full(pack_length, IGNORED, dtype=np.int64)
    positions = np.zeros(pack_length, dtype=np.int64)
    borders = [0]
    for row in rows:
        start, end = borders[-1], borders[-1] + len(row.ids)
        ids[start:end] = row.ids
        targets[start : end - 1] = np.where(row.trained[1:], row.ids[1:], IGNORED)
        positions[start:end] = np.arange(end - start)
        borders.append(end)
    if tokens < pack_length:
        positions[tokens:] = np.arange(pack_length - tokens)
        borders.append(pack_length)
    return Pack(
        ids_T=torch.from_numpy(ids),
        targets_T=torch.from_numpy(targets),
        positions_T=torch.from_numpy(positions),
        cu_seqlens=torch.tensor(borders, dtype=torch.int32),
        max_seqlen=int(np.diff(borders).max()),
        trained_tokens=int((targets != IGNORED).sum()),
        tokens=tokens,
    )


def fingerprint(rows: Sequence["Rendered"], settings: Mapping[str, object]) -> str:
    """sha256, in hex, of every token, of what is trained on, and of the settings that decide the order of the data.

    The tokens already depend on dataset, template and tokenizer, so those need not be named.
    """
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for row in rows:
        digest.update(len(row.ids).to_bytes(8, "little"))
        digest.update(row.ids.astype("<i4").tobytes())
        digest.update(np.packbits(row.trained).tobytes())
    return digest.hexdigest()
