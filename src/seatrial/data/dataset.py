"""Records on disk as rows of tokens, ready to be packed."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from seatrial.data.conversation import Conversation, Rejection
from seatrial.data.pack import fingerprint
from seatrial.data.pool import map_records
from seatrial.data.render import Rendered, Renderer, TrainOn
from seatrial.data.validate import check_rendered, sample_of
from seatrial.errors import SeatrialError, UsageError

PROVEN_ROWS = 100
"""Rows that are proven before any is trained on, in a fraction of a second."""


@dataclass(frozen=True)
class TokenRows:
    """N rendered rows that fit into a pack, and how many did not make it, by reason."""

    rows: tuple[Rendered, ...]
    left_out: dict[str, int]

    @property
    def lengths_N(self) -> npt.NDArray[np.int64]:
        return np.array([len(row.ids) for row in self.rows], dtype=np.int64)

    @property
    def trained_N(self) -> npt.NDArray[np.int64]:
        """Trained tokens of each row. A row's first token has nothing to be predicted from, so it never counts."""
        return np.array([row.trained[1:].sum() for row in self.rows], dtype=np.int64)

    def fingerprint(self, *, length: int, seed: int) -> str:
        """Identity of the rows and of the order they are trained in."""
        return fingerprint(self.rows, {"length": length, "seed": seed})


def load_rows(path: Path, renderer: Renderer, *, train_on: TrainOn, length: int, over_long: str) -> TokenRows:
    """Read and render the records at ``path``, and prove on a sample that what is trained is what will be served.

    A row of more than ``length`` tokens is dropped, or cut after the last answer that fits ('truncate'), or an error
    ('raise').

    Raises:
        UsageError: nothing is left, or nothing in it is trained on, or a row is over-long and ``over_long`` is 'raise'.
        SeatrialError: a rendered row fails the proof.
    """
    left_out: Counter[str] = Counter()
    rows: list[Rendered] = []
    number = 0
    # Text has no answers that anybody serves.
    proven = sample_of(path, PROVEN_ROWS) if train_on is not TrainOn.TEXT else frozenset[int]()
    for number, rendered in enumerate(map_records(_render, (renderer, train_on, proven), path), 1):
        if isinstance(rendered, Rejection):
            left_out[rendered.reason] += 1
        elif len(rendered.ids) > length:
            if over_long == "raise":
                raise UsageError(
                    f"{path}: row {number} has {len(rendered.ids)} tokens, a pack holds {length}: "
                    "raise data.length or set data.over_long=drop"
                )
            shortened = rendered.cut_to(length) if over_long == "truncate" else None
            if shortened is None:
                left_out["longer than a pack"] += 1
            else:
                rows.append(shortened)
        else:
            rows.append(rendered)
    if not rows:
        why = ", ".join(f"{count} {reason}" for reason, count in left_out.most_common()) or "the file is empty"
        raise UsageError(f"{path}: no row is left to train on ({why})")
    loaded = TokenRows(tuple(rows), dict(left_out))
    if not loaded.trained_N.any():
        raise UsageError(f"{path}: none of its {number} rows has an assistant turn to train on")
    return loaded


def _render(shared: tuple[Renderer, TrainOn, frozenset[int]], number: int, row: Conversation) -> Rendered | Rejection:
    renderer, train_on, proven = shared
    rendered = renderer.render(row, train_on)
    if number in proven and isinstance(rendered, Rendered):
        check = check_rendered(renderer, row, rendered, train_on)
        if check.reason:
            raise SeatrialError(
                f"row {number} ({row.id}) with template '{renderer.template.name}': what is trained is not what will "
                f"be served: {check.reason}: {check.detail}; `seatrial data validate --all` lists all such rows"
            )
    return rendered
