"""Where checkpoints lie: a directory, or object storage through fsspec. No torch.

Both keep one promise: a name that :meth:`Storage.committed` gives was whole when it got that name. Names of files are
relative to the place, such as ``step-00000010/adapter/adapter_model.safetensors``.
"""

import errno
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal, Protocol, get_args

from seatrial.dist.checkpoint.manifest import MANIFEST, newest_first, step_of
from seatrial.errors import IntegrityError, UsageError

VISIBLE_SECONDS = 30.0
"""How long a file of another node may take to appear. NFS clients keep attributes for up to 60 s, but look a name that
they do not know up again on every open (Linux nfs(5), close-to-open consistency)."""

SYNC_EVERY_BYTES = 256 * 2**20
"""Written between two fsyncs, so that none of them is long and a stuck disk is told from a slow one."""

_POLL_SECONDS = 0.05
_TEMPORARY, _REMOVING = ".tmp", ".removing"

CORRUPT = "corrupt"
Why = Literal["corrupt", "rolled-back"]


class Storage(Protocol):
    """One run's checkpoints. Methods raise ``OSError`` for whatever the storage refuses."""

    @property
    def label(self) -> str:
        """For messages."""

    def names_of(self, step: int, token: str) -> tuple[str, str]:
        """Under what name a save is written and under what it is committed. ``token`` is the attempt's own."""

    def committed(self) -> list[str]:
        """Names, newest first."""

    def corrupt(self) -> list[str]:
        """Names of what was set aside as that."""

    def leftovers(self) -> list[str]:
        """Names of saves that were cut off."""

    def create(self, name: str) -> "Any":
        """A context that gives a binary file to write; leaving it makes the file durable. Never overwrites."""

    def open(self, name: str) -> BinaryIO:
        """To read."""

    def size(self, name: str) -> int | None:
        """Bytes of a file, None when there is none."""

    def commit(self, temporary: str, final: str) -> None:
        """Make ``temporary``, whose manifest is written, the checkpoint ``final``."""

    def set_aside(self, name: str, why: Why, reason: str) -> str:
        """Make a checkpoint none that counts, without deleting it, and say under what name it is."""

    def remove(self, name: str) -> None:
        """Delete a checkpoint so that no moment leaves half of it under a committed name."""

    def free_bytes(self) -> int | None:
        """None where there is no limit that we could know."""


def open_storage(place: str) -> Storage:
    """A URL is object storage, anything else a directory."""
    return ObjectStorage(place) if "://" in place else Directory(Path(place))


def await_file(storage: Storage, name: str, size: int | None = None, *, seconds: float = VISIBLE_SECONDS) -> int:
    """Poll a file by its name until it is there, with ``size`` bytes when that is given; returns its size.

    Raises:
        IntegrityError: it is not there in time, or has another size.
    """
    deadline = time.monotonic() + seconds
    while (found := storage.size(name)) is None or (size is not None and found != size):
        if time.monotonic() > deadline:
            what = "missing" if found is None else f"{found} bytes, expected {size}"
            raise IntegrityError(f"{storage.label}/{name}: {what}")
        time.sleep(_POLL_SECONDS)
    return found


class Directory:
    """A local disk or a shared file system, where rename is atomic and fsync is durable."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def label(self) -> str:
        return str(self.path)

    def names_of(self, step: int, token: str) -> tuple[str, str]:
        final = f"step-{step:08d}"
        return f"{final}{_TEMPORARY}-{token}", final

    def _names(self) -> list[str]:
        return [path.name for path in self.path.iterdir()] if self.path.is_dir() else []

    def committed(self) -> list[str]:
        return newest_first(self._names())

    def corrupt(self) -> list[str]:
        return sorted(name for name in self._names() if f".{CORRUPT}" in name)

    def leftovers(self) -> list[str]:
        return sorted(name for name in self._names() if _TEMPORARY in name or name.endswith(_REMOVING))

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with _Synced(path) as file:
            yield file  # type: ignore[misc]

    def open(self, name: str) -> BinaryIO:
        file: BinaryIO = (self.path / name).open("rb")
        return file

    def size(self, name: str) -> int | None:
        try:
            return (self.path / name).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def commit(self, temporary: str, final: str) -> None:
        source, target = self.path / temporary, self.path / final
        for folder, _, _ in os.walk(source):
            _fsync(Path(folder))
        if target.exists():
            raise FileExistsError(errno.EEXIST, "a checkpoint is never overwritten", str(target))
        source.rename(target)
        _fsync(self.path)

    def set_aside(self, name: str, why: Why, reason: str) -> str:
        target, number = self.path / f"{name}.{why}", 1
        while target.exists():
            target, number = self.path / f"{name}.{why}-{number}", number + 1
        (self.path / name).rename(target)
        _fsync(self.path)
        return target.name

    def remove(self, name: str) -> None:
        path = self.path / name
        if step_of(name) is not None:
            path = path.rename(self.path / f"{name}{_REMOVING}")
        shutil.rmtree(path)

    def free_bytes(self) -> int | None:
        at = self.path
        while not at.exists():
            at = at.parent
        usage = os.statvfs(at)
        return usage.f_bavail * usage.f_frsize


class _Synced:
    """A new file that is synced as it grows, and whole and durable when left without an error."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb", buffering=0)
        self._unsynced = 0

    def __enter__(self) -> "_Synced":
        return self

    def write(self, data: memoryview | bytes) -> int:
        rest = memoryview(data)
        while rest:
            count = self._file.write(rest)
            assert count is not None
            rest = rest[count:]
        self._unsynced += len(data)
        if self._unsynced >= SYNC_EVERY_BYTES:
            os.fsync(self._file.fileno())
            self._unsynced = 0
        return len(data)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                os.fsync(self._file.fileno())
        finally:
            self._file.close()


class ObjectStorage:
    """What has no rename: every attempt writes under a prefix of its own, and the manifest written last commits it."""

    def __init__(self, url: str) -> None:
        import fsspec  # only where checkpoints are not local

        try:
            self._files, root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UsageError(f"checkpoint.dir: {url} cannot be opened: {error}") from error
        self._url = url.rstrip("/")
        self._root = str(root).rstrip("/")

    @property
    def label(self) -> str:
        return self._url

    def names_of(self, step: int, token: str) -> tuple[str, str]:
        name = f"step-{step:08d}-{token}"
        return name, name

    def _names(self) -> list[str]:
        self._files.invalidate_cache()
        try:
            return [PurePosixPath(path).name for path in self._files.ls(self._root, detail=False)]
        except FileNotFoundError:
            return []

    def committed(self) -> list[str]:
        return [name for name in newest_first(self._names()) if self._has(name, MANIFEST) and not self._marked(name)]

    def corrupt(self) -> list[str]:
        return [name for name in newest_first(self._names()) if self._has(name, CORRUPT)]

    def leftovers(self) -> list[str]:
        return [n for n in newest_first(self._names()) if not self._has(n, MANIFEST) and not self._marked(n)]

    def _has(self, name: str, file: str) -> bool:
        return self.size(f"{name}/{file}") is not None

    def _marked(self, name: str) -> bool:
        return any(self._has(name, why) for why in get_args(Why))

    @contextmanager
    def create(self, name: str) -> Iterator[BinaryIO]:
        path = f"{self._root}/{name}"
        self._files.makedirs(path.rpartition("/")[0], exist_ok=True)
        with self._files.open(path, "wb") as file:
            yield file

    def open(self, name: str) -> BinaryIO:
        file: BinaryIO = self._files.open(f"{self._root}/{name}", "rb")
        return file

    def size(self, name: str) -> int | None:
        self._files.invalidate_cache()
        try:
            return int(self._files.size(f"{self._root}/{name}"))
        except FileNotFoundError:
            return None

    def commit(self, temporary: str, final: str) -> None:
        assert temporary == final, "the manifest was the commit"

    def set_aside(self, name: str, why: Why, reason: str) -> str:
        with self.create(f"{name}/{why}") as marker:
            marker.write(reason.encode())
        return f"{name} (marked {why})"

    def remove(self, name: str) -> None:
        manifest = f"{self._root}/{name}/{MANIFEST}"
        if self._has(name, MANIFEST):
            self._files.rm_file(manifest)
        self._files.rm(f"{self._root}/{name}", recursive=True)

    def free_bytes(self) -> int | None:
        return None


def _fsync(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
