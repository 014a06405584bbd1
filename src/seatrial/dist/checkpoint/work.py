"""What is done to make a save durable, in order: write, commit, collect. No torch: a process of its own runs it.

A save that dies between any two of these statements leaves the checkpoints before it as they were.
"""

import errno
import hashlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from seatrial.dist.checkpoint.manifest import MANIFEST, Manifest, StoredFile, decode_manifest, encode_manifest
from seatrial.dist.checkpoint.storage import Storage, await_file
from seatrial.errors import IntegrityError, SeatrialError

THREADS = 4
"""Files written or read at once: sha256 with the CPU's own instructions makes 1 to 2 GB/s a core."""

_BLOCK_BYTES = 16 * 2**20


@dataclass(frozen=True)
class FileToWrite:
    """A header, then bytes ``begin`` to ``end`` of the staged memory. ``name`` is relative to the checkpoint."""

    name: str
    header: bytes
    begin: int
    end: int

    @property
    def size(self) -> int:
        return len(self.header) + self.end - self.begin


@dataclass(frozen=True)
class Write:
    """This rank's part of a save."""

    directory: str
    files: tuple[FileToWrite, ...]


@dataclass(frozen=True)
class Commit:
    """The first rank's part: small files of its own, then the manifest of everybody's, then the name."""

    directory: str
    manifest: Manifest
    texts: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class Collect:
    """Delete what is older than the newest ``keep`` that are sound."""

    keep: int


@dataclass(frozen=True)
class Discard:
    """Delete what a save that failed has left."""

    directory: str


@dataclass(frozen=True)
class Collected:
    """Names. ``corrupt``: set aside, with the reason."""

    removed: tuple[str, ...]
    corrupt: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Failed:
    """Why a task failed. ``number``: errno, 0 when there is none."""

    number: int
    reason: str


@dataclass(frozen=True)
class Alive:
    """Sent while a task gets on."""


Progress = Callable[[], None]


def write(storage: Storage, task: Write, staged: memoryview, alive: Progress) -> dict[str, tuple[int, str]]:
    """Write this rank's files, each in a thread, hashing what is written; size and sha256 of each by name.

    Raises:
        OSError: what any of the threads met, a full disk before it is filled.
    """
    free, needed = storage.free_bytes(), sum(file.size for file in task.files)
    if free is not None and free < needed:
        raise OSError(errno.ENOSPC, f"{needed} bytes are needed, {free} are free", storage.label)
    with ThreadPoolExecutor(THREADS, "write") as pool:
        written = pool.map(lambda file: _write_file(storage, task.directory, file, staged, alive), task.files)
        return {file.name: what for file, what in zip(task.files, written, strict=True)}


def _write_file(
    storage: Storage, directory: str, file: FileToWrite, staged: memoryview, alive: Progress
) -> tuple[int, str]:
    digest = hashlib.sha256()
    written = 0
    with storage.create(f"{directory}/{file.name}") as stream:
        for block in (memoryview(file.header), *_blocks(staged[file.begin : file.end])):
            digest.update(block)
            written += stream.write(block)
            alive()
    if written != file.size:
        raise OSError(errno.EIO, f"{written} of {file.size} bytes written", f"{storage.label}/{directory}/{file.name}")
    return written, digest.hexdigest()


def commit(storage: Storage, task: Commit, alive: Progress) -> None:
    """Make what all ranks have written a checkpoint.

    Raises:
        OSError: the storage refuses.
        IntegrityError: a file that a rank has written is not to be seen from here.
    """
    for name, text in task.texts.items():
        with storage.create(f"{task.directory}/{name}") as stream:
            stream.write(text)
    for name, file in task.manifest.files.items():
        try:
            await_file(storage, f"{task.directory}/{name}", file.size)
        except IntegrityError as error:
            raise IntegrityError(f"{error}; is checkpoint.dir the same storage on every node?") from error
        alive()
    write_manifest(storage, task)
    storage.commit(task.directory, task.manifest.name)


def write_manifest(storage: Storage, task: Commit) -> None:
    """Last of all files: on object storage this is the commit."""
    with storage.create(f"{task.directory}/{MANIFEST}") as stream:
        stream.write(encode_manifest(task.manifest))


def collect(storage: Storage, task: Collect, alive: Progress) -> Collected:
    """Delete the oldest, as long as ``keep`` newer ones are what their manifests say; set aside those that are not.

    The newest was hashed as it was written and is taken at its size; those before it are read. On object storage,
    which checks what it stores and charges for what is read, sizes must do.
    """
    sound: list[str] = []
    removed: list[str] = []
    corrupt: list[tuple[str, str]] = []
    names = storage.committed()
    for name in names:
        if len(sound) >= task.keep:
            storage.remove(name)
            removed.append(name)
            continue
        if len(names) <= task.keep:
            break  # nothing to delete, so nothing to make sure of
        try:
            verify(storage, name, hashes=bool(sound) and storage.free_bytes() is not None, alive=alive)
            sound.append(name)
        except IntegrityError as error:
            storage.set_aside(name, "corrupt", str(error))
            corrupt.append((name, str(error)))
    return Collected(tuple(removed), tuple(corrupt))


def discard(storage: Storage, task: Discard) -> None:
    """Give the space of a failed save back. Absent files are fine: it may have failed before it made any."""
    try:
        storage.remove(task.directory)
    except FileNotFoundError:
        return


def read_manifest(storage: Storage, name: str, *, seconds: float = 0.0) -> Manifest:
    """The manifest of a checkpoint, waiting up to ``seconds`` for it to become visible.

    Raises:
        IntegrityError: it has none that can be read.
    """
    where = f"{storage.label}/{name}"
    try:
        await_file(storage, f"{name}/{MANIFEST}", seconds=seconds)
        with storage.open(f"{name}/{MANIFEST}") as stream:
            text = stream.read()
    except (OSError, IntegrityError) as error:
        raise IntegrityError(f"{where}: no readable {MANIFEST}: {error}") from error
    manifest = decode_manifest(text, where)
    if manifest.name != name:
        raise IntegrityError(f"{where}: its manifest is that of {manifest.name}")
    return manifest


def verify(storage: Storage, name: str, *, hashes: bool = True, alive: Progress = lambda: None) -> Manifest:
    """The manifest of a checkpoint, after holding every file against it.

    Raises:
        IntegrityError: no manifest, or a file that is missing or has another size or hash; names it.
    """
    manifest = read_manifest(storage, name)
    verify_files(storage, manifest, list(manifest.files), hashes=hashes, alive=alive)
    return manifest


def verify_files(
    storage: Storage, manifest: Manifest, files: Sequence[str], *, hashes: bool = True, alive: Progress = lambda: None
) -> None:
    """Hold some files of a checkpoint against its manifest.

    Raises:
        IntegrityError: as :func:`verify`.
    """

    def check(name: str) -> None:
        stated = manifest.files[name]
        path = f"{manifest.name}/{name}"
        await_file(storage, path, stated.size, seconds=0.0)
        if hashes:
            for _ in read_hashed(storage, path, stated):
                alive()

    with ThreadPoolExecutor(THREADS, "verify") as pool:
        list(pool.map(check, files))


def read_hashed(storage: Storage, path: str, stated: StoredFile) -> Iterator[bytes]:
    """The blocks of a file. What was read is what the manifest states only if this ends without an error.

    Raises:
        IntegrityError: at the end, when size or hash differ; or the storage cannot read it.
    """
    digest, size = hashlib.sha256(), 0
    try:
        with storage.open(path) as stream:
            while block := stream.read(_BLOCK_BYTES):
                digest.update(block)
                size += len(block)
                yield block
    except OSError as error:
        raise IntegrityError(f"{storage.label}/{path}: cannot be read: {error}") from error
    if size != stated.size or digest.hexdigest() != stated.sha256:
        raise IntegrityError(f"{storage.label}/{path}: differs from what the manifest states")


def explain(error: OSError | SeatrialError) -> tuple[int, str]:
    """An error as number and text, to be told to another process; 0 when it has no number."""
    if isinstance(error, OSError):
        return error.errno or 0, f"{error.strerror or type(error).__name__}: {error.filename or error}"
    return 0, str(error)


def _blocks(data: memoryview) -> Iterator[memoryview]:
    for begin in range(0, len(data), _BLOCK_BYTES):
        yield data[begin : begin + _BLOCK_BYTES]
