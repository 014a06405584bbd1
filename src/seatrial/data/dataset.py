"""Records on disk as rows of tokens, ready to be packed."""

import itertools
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import numpy.typing as npt

from seatrial.data.conversation import Rejection, decode_lines, read_records, records_file
from seatrial.data.pack import fingerprint
from seatrial.data.render import Rendered, Renderer, TrainOn
from seatrial.errors import UsageError
from seatrial.hardware import usable_cpus

# Below this a pool of processes costs more to start than it saves.
_BYTES_WORTH_A_POOL = 30_000_000
_CHUNK_ROWS = 2000


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
    """Read and render the records at ``path``; rows of more than ``length`` tokens are dropped or refused.

    Raises:
        UsageError: nothing is left, or nothing in it is trained on, or a row is over-long and ``over_long`` is 'raise'.
    """
    left_out: Counter[str] = Counter()
    rows: list[Rendered] = []
    number = 0
    for number, rendered in enumerate(_render_all(path, renderer, train_on), 1):
        if isinstance(rendered, Rejection):
            left_out[rendered.reason] += 1
        elif len(rendered.ids) > length:
            if over_long == "raise":
                raise UsageError(
                    f"{path}: row {number} has {len(rendered.ids)} tokens, a pack holds {length}: "
                    "raise data.length or set data.over_long=drop"
                )
            left_out["longer than a pack"] += 1
        else:
            rows.append(rendered)
    if not rows:
        why = ", ".join(f"{count} {reason}" for reason, count in left_out.most_common()) or "the file is empty"
        raise UsageError(f"{path}: no row is left to train on ({why})")
    loaded = TokenRows(tuple(rows), dict(left_out))
    if not loaded.trained_N.any():
        raise UsageError(f"{path}: none of its {number} rows has an assistant turn to train on")
    return loaded


def _render_all(path: Path, renderer: Renderer, train_on: TrainOn) -> Iterator[Rendered | Rejection]:
    """Rendered in the order of the file; a large file by a pool of processes, which also do the decoding."""
    file = records_file(path)
    if file.stat().st_size < _BYTES_WORTH_A_POOL or usable_cpus() == 1:
        yield from (renderer.render(conversation, train_on) for conversation in read_records(file))
        return
    # spawn: a forked child would inherit the locks of threads that torch and the tokenizer already run.
    with ProcessPoolExecutor(usable_cpus(), get_context("spawn")) as pool:
        chunks = _chunks(file)
        pending = deque(
            pool.submit(_render_chunk, *chunk, renderer, train_on)
            for chunk in itertools.islice(chunks, usable_cpus() * 4)  # bounds what is read ahead, and so the memory
        )
        while pending:
            yield from pending.popleft().result()
            pending.extend(
                pool.submit(_render_chunk, *chunk, renderer, train_on) for chunk in itertools.islice(chunks, 1)
            )


def _render_chunk(
    file: Path, first: int, lines: Sequence[bytes], renderer: Renderer, train_on: TrainOn
) -> list[Rendered | Rejection]:
    return [renderer.render(conversation, train_on) for conversation in decode_lines(file, lines, first)]


def _chunks(file: Path) -> Iterator[tuple[Path, int, list[bytes]]]:
    with file.open("rb") as lines:
        first = 1
        while chunk := list(itertools.islice(lines, _CHUNK_ROWS)):
            yield file, first, chunk
            first += len(chunk)
