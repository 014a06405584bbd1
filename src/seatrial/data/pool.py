"""The same work on every record of a file, in order, by as many processes as pay."""

import itertools
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from typing import Any, TypeVar

from seatrial.data.conversation import Conversation, decode_lines, read_records, records_file
from seatrial.errors import SeatrialError
from seatrial.hardware import usable_cpus

Shared = TypeVar("Shared")
Result = TypeVar("Result")

# Below this, starting processes that import a tokenizer library costs more than it saves.
_BYTES_WORTH_A_POOL = 30_000_000
_CHUNK_ROWS = 1000
_CHUNKS_AHEAD = 4
"""Chunks in flight for each process: bounds what is read ahead, and so the memory."""


def map_records(work: Callable[[Shared, int, Conversation], Result], shared: Shared, path: Path) -> Iterator[Result]:
    """``work(shared, number, record)`` for each record at ``path``, numbered from 1, in order.

    A large file is worked on by a pool, whose processes also do the decoding: ``work`` must be a function of a module,
    and ``shared``, which may be large, travels to each process once.

    Raises:
        UsageError: no such file, or a line that is not a record.
        SeatrialError: a process of the pool was killed.
    """
    file = records_file(path)
    processes = usable_cpus()
    if file.stat().st_size < _BYTES_WORTH_A_POOL or processes == 1:
        yield from (work(shared, number, record) for number, record in enumerate(read_records(file), 1))
        return
    pending: deque[Future[list[Any]]] = deque()
    try:
        # spawn: a forked child would inherit the locks of threads that torch and the tokenizer already run.
        with ProcessPoolExecutor(processes, get_context("spawn"), _set_up, (work, shared, file)) as pool:
            for first, lines in _chunks(file):
                pending.append(pool.submit(_work_on, first, lines))
                if len(pending) >= processes * _CHUNKS_AHEAD:
                    yield from pending.popleft().result()
            while pending:
                yield from pending.popleft().result()
    except BrokenProcessPool as error:
        raise SeatrialError(
            f"{file}: a worker process died, most often for lack of memory: are its rows huge?"
        ) from error


_job: tuple[Callable[[Any, int, Conversation], Any], Any, Path] | None = None
"""In a process of the pool: what it does, with what, and to which file."""


def _set_up(work: Callable[[Any, int, Conversation], Any], shared: object, file: Path) -> None:
    global _job
    _job = work, shared, file


def _work_on(first: int, lines: list[bytes]) -> list[Any]:
    assert _job is not None
    work, shared, file = _job
    return [work(shared, number, record) for number, record in enumerate(decode_lines(file, lines, first), first)]


def _chunks(file: Path) -> Iterator[tuple[int, list[bytes]]]:
    """The lines of ``file`` by the thousand, each time with the number of the first."""
    with file.open("rb") as lines:
        for first in itertools.count(1, _CHUNK_ROWS):
            if not (chunk := list(itertools.islice(lines, _CHUNK_ROWS))):
                return
            yield first, chunk
