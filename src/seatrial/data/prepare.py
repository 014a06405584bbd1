"""Rows of a known format -> validated records: read, convert, validate, gate, write."""

import hashlib
import os
import sys
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from seatrial import __version__
from seatrial.data.augment import Augmentation, augment_records
from seatrial.data.contamination import load_benchmark
from seatrial.data.conversation import Rejection
from seatrial.data.convert import InputRow, Outcome, Recipe, convert_rows
from seatrial.data.dedup import Seen
from seatrial.data.gates import Tally, complaints
from seatrial.data.reading import in_batches, input_files, read_rows
from seatrial.data.schema import NORMALISER_VERSION
from seatrial.errors import SeatrialError, UsageError
from seatrial.hardware import usable_cpus
from seatrial.records import JsonObject, write_json

RECORDS, HELD_OUT, REJECTIONS, MANIFEST = "records.jsonl", "held_out.jsonl", "rejections.jsonl", "manifest.json"
OUTPUTS = (RECORDS, HELD_OUT, REJECTIONS, MANIFEST)
BATCH_BYTES = 2**20
# Below this a pool of processes costs more to start than it saves.
BYTES_WORTH_A_POOL = 24 * 2**20


def prepare(
    path: Path,
    out: Path,
    recipe: Recipe,
    *,
    augmentation: Augmentation | None = None,
    pattern: str = "*",
    min_yield: float | None = None,
    min_call_share: float | None = None,
    workers: int | None = None,
    force: bool = False,
) -> JsonObject:
    """Convert the rows of a file or folder into ``out/records.jsonl``; return what ``out/manifest.json`` says.

    Beside the records stand ``rejections.jsonl`` with every row that was turned away and why, and, with
    ``recipe.held_out_tools``, ``held_out.jsonl``. Nothing is replaced before all of it is complete. Memory holds a few
    batches of 1 MB for each of the ``workers`` (by default one a core, a single one for little input), and what
    deduplication remembers.

    Raises:
        UsageError: unreadable input, no row left, a gate failed, or ``out`` holds another preparation or is full.
    """
    files = input_files(path, pattern)
    if recipe.benchmark is not None:
        load_benchmark(recipe.benchmark)  # a mistake in it is reported before anything starts
    _claim(out, force)
    with _writing(out), TemporaryDirectory(prefix=".partial-", dir=out) as partial:
        tallies = _write_rows(files, recipe, Path(partial), _workers(files, workers))
        total = _total(tallies)
        _replace(Path(partial), out, [REJECTIONS])
        _refuse_nothing(path, total, out)
        if failed := complaints(tallies, min_yield=min_yield, min_call_share=min_call_share):
            raise UsageError("\n".join(f"{line}; every rejected row is in {out / REJECTIONS}" for line in failed))
        augmented = augment_records(Path(partial) / RECORDS, augmentation, recipe.seed) if augmentation else {}
        manifest = _manifest(files, recipe, tallies, total, Path(partial)) | augmented
        write_json(Path(partial) / MANIFEST, manifest)
        _replace(Path(partial), out, [RECORDS, HELD_OUT, MANIFEST])
    return manifest


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    """Whatever else may go wrong with files is said by whoever reads them."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"--out {out}: cannot be written: {error.strerror or error}") from error


def _claim(out: Path, force: bool) -> None:
    if out.exists() and not out.is_dir():
        raise UsageError(f"--out {out}: is a file; choose a directory")
    if (out / "settings.json").exists():
        raise UsageError(f"--out {out}: is the directory of a run; choose another")
    if not force and any((out / name).exists() for name in (RECORDS, MANIFEST)):
        raise UsageError(f"--out {out}: already holds prepared records; choose another, or replace them with --force")
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"--out {out}: cannot be made: {error}") from error


def _workers(files: Sequence[Path], asked: int | None) -> int:
    if asked is not None:
        return asked
    return usable_cpus() if sum(file.stat().st_size for file in files) >= BYTES_WORTH_A_POOL else 1


def _write_rows(files: Sequence[Path], recipe: Recipe, out: Path, workers: int) -> dict[str, Tally]:
    """Convert every row and write it where it belongs; counts by source."""
    tallies: defaultdict[str, Tally] = defaultdict(Tally)
    seen = Seen(recipe.dedup)
    with ExitStack() as stack:
        records = stack.enter_context((out / RECORDS).open("wb"))
        rejections = stack.enter_context((out / REJECTIONS).open("wb"))
        held_out = stack.enter_context((out / HELD_OUT).open("wb")) if recipe.held_out_tools else records
        for outcome in _outcomes(_input_batches(files), recipe, workers):
            if outcome.rejection is None and (repeated := seen.add(outcome.mark)):
                outcome = msgspec.structs.replace(outcome, record=b"", rejection=Rejection(repeated.value))
            tallies[outcome.source].add(outcome)
            if outcome.rejection is None:
                (held_out if outcome.held_out else records).write(outcome.record)
            else:
                rejections.write(_rejection_line(outcome, outcome.rejection))
    return tallies


def _input_batches(files: Sequence[Path]) -> Iterator[list[InputRow]]:
    """Rows numbered over all files, with a progress bar over their bytes when somebody watches."""
    total_bytes = sum(file.stat().st_size for file in files)
    columns = (TextColumn("{task.fields[rows]:,} rows"), BarColumn(), TextColumn("{task.percentage:.0f}%"))
    console = Console(stderr=True)
    number = 0
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=total_bytes, rows=0)
        for file in files:
            name = str(file)
            for batch in in_batches(read_rows(file), BATCH_BYTES):
                yield [InputRow(number + i, f"{name}:{line}", text) for i, (line, text) in enumerate(batch, 1)]
                number += len(batch)
                progress.update(task, advance=sum(len(text) for _, text in batch), rows=number)


def _outcomes(batches: Iterable[list[InputRow]], recipe: Recipe, workers: int) -> Iterator[Outcome]:
    """Outcomes in the order of the rows, at most two batches a worker in flight."""
    if workers == 1:
        for batch in batches:
            yield from convert_rows(recipe, batch)
        return
    waiting: deque[Future[list[Outcome]]] = deque()
    try:
        with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
            for batch in batches:
                waiting.append(pool.submit(convert_rows, recipe, batch))
                if len(waiting) >= 2 * workers:
                    yield from waiting.popleft().result()
            while waiting:
                yield from waiting.popleft().result()
    except BrokenProcessPool as error:
        raise SeatrialError("a worker process died, most often for lack of memory; try --workers 1") from error


def _rejection_line(outcome: Outcome, rejection: Rejection) -> bytes:
    entry = {
        "row": outcome.number,
        "place": outcome.place,
        "id": outcome.id,
        "source": outcome.source,
        "reason": rejection.reason,
        "detail": rejection.detail,
    }
    return msgspec.json.encode(entry) + b"\n"


def _total(tallies: dict[str, Tally]) -> Tally:
    total = Tally()
    for tally in tallies.values():
        total.rows += tally.rows
        total.accepted += tally.accepted
        total.held_out += tally.held_out
        total.targets += tally.targets
        total.targets_with_tools += tally.targets_with_tools
        total.targets_with_call += tally.targets_with_call
        total.rejected += tally.rejected
        total.repairs += tally.repairs
    return total


def _refuse_nothing(path: Path, total: Tally, out: Path) -> None:
    if total.accepted:
        return
    if not total.rows:
        raise UsageError(f"{path}: holds no rows")
    reason, count = total.rejected.most_common(1)[0]
    raise UsageError(
        f"{path}: none of its {total.rows} rows could be used, most often for {reason} ({count}); "
        f"is --source right? Every row is in {out / REJECTIONS}"
    )


def _manifest(
    files: Sequence[Path], recipe: Recipe, tallies: dict[str, Tally], total: Tally, written: Path
) -> JsonObject:
    manifest: JsonObject = {
        "source": recipe.source,
        **total.summary(),
        "sources": {source: tally.summary() for source, tally in sorted(tallies.items())},
        "recipe": {
            "dedup": recipe.dedup.value,
            "held_out_tools": recipe.held_out_tools,
            "benchmark": str(recipe.benchmark) if recipe.benchmark else None,
            "seed": recipe.seed,
        },
        "inputs": [{"path": str(file), "sha256": _sha256(file)} for file in files],
        "normaliser_version": NORMALISER_VERSION,
        "seatrial": __version__,
        "records_sha256": _sha256(written / RECORDS),
    }
    if recipe.held_out_tools:
        manifest["held_out_sha256"] = _sha256(written / HELD_OUT)
    return manifest


def _replace(partial: Path, out: Path, names: Sequence[str]) -> None:
    """Move complete files into place; the manifest comes last, so that its presence says that all is there."""
    if MANIFEST in names:
        for name in (MANIFEST, HELD_OUT):
            (out / name).unlink(missing_ok=True)
    for name in names:
        if (partial / name).exists():
            with (partial / name).open("rb") as file:
                os.fsync(file.fileno())
            (partial / name).replace(out / name)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
