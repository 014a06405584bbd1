"""The same work on many rows, in order, by as many processes as pay."""

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, TypeVar

from seatrial.hardware import usable_cpus

Shared = TypeVar("Shared")
Row = TypeVar("Row")
Result = TypeVar("Result")

_ROWS_WORTH_A_POOL = 10_000
"""Below this, starting processes that import a tokenizer library costs more than it saves."""

_CHUNK_ROWS = 500
_CHUNKS_AHEAD = 4
"""Chunks in flight for each process: bounds what is read ahead, and so the memory."""


def map_rows(work: Callable[[Shared, Row], Result], shared: Shared, rows: Iterable[Row]) -> Iterator[Result]:
    """``work(shared, row)`` for each row, in the order of the rows.

    With many rows and cores a pool does it: ``work`` must be a function of a module, and ``shared``, which may be
    large, travels to each process once.
    """
    remaining = iter(rows)
    head = list(itertools.islice(remaining, _ROWS_WORTH_A_POOL))
    everything = itertools.chain(head, remaining)
    processes = usable_cpus()
    if len(head) < _ROWS_WORTH_A_POOL or processes == 1:
        yield from (work(shared, row) for row in everything)
        return
    # spawn: a forked child would inherit locks held by the threads of torch and of the tokenizer.
    with ProcessPoolExecutor(processes, get_context("spawn"), _set_up, (work, shared)) as pool:
        pending: deque[Future[list[Any]]] = deque()
        for chunk in _chunks(everything):
            pending.append(pool.submit(_work_on, chunk))
            if len(pending) >= processes * _CHUNKS_AHEAD:
                yield from pending.popleft().result()
        while pending:
            yield from pending.popleft().result()


_job: tuple[Callable[[Any, Any], Any], Any] | None = None
"""In a process of the pool: what it does, and with what."""


def _set_up(work: Callable[[Any, Any], Any], shared: object) -> None:
    global _job
    _job = work, shared


def _work_on(chunk: list[Any]) -> list[Any]:
    assert _job is not None
    work, shared = _job
    return [work(shared, row) for row in chunk]


def _chunks(rows: Iterator[Row]) -> Iterator[list[Row]]:
    while chunk := list(itertools.islice(rows, _CHUNK_ROWS)):
        yield chunk
