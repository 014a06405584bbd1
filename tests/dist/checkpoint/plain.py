"""Checkpoints made by the very functions of the writing process, without torch."""

import hashlib

from seatrial.dist.checkpoint.manifest import Manifest, Piece, StoredFile, TensorKind
from seatrial.dist.checkpoint.storage import Storage
from seatrial.dist.checkpoint.work import Commit, FileToWrite, Write, commit, write

TOKEN = "00c0ffee"
NAMES = ("rank-00000-0.safetensors", "rank-00000-1.safetensors", "rank-00001-0.safetensors")
FILE_BYTES = 5000


def staged(step: int) -> memoryview:
    """Bytes that depend on the step, for all files."""
    seed = hashlib.sha256(str(step).encode()).digest()
    return memoryview(seed * (len(NAMES) * FILE_BYTES // len(seed) + 1))


def files() -> tuple[FileToWrite, ...]:
    return tuple(
        FileToWrite(name, b"header", FILE_BYTES * number, FILE_BYTES * (number + 1))
        for number, name in enumerate(NAMES)
    )


def make(storage: Storage, step: int) -> str:
    """Write and commit; the final name."""
    temporary, final = storage.names_of(step, TOKEN)
    written = write(storage, Write(temporary, files()), staged(step), lambda: None)
    commit(storage, Commit(temporary, manifest(final, step, written), {"adapter/note.json": b"{}"}), lambda: None)
    return final


def manifest(final: str, step: int, written: dict[str, tuple[int, str]]) -> Manifest:
    pieces = {name: (Piece(name, (0,), (FILE_BYTES,), len(b"header")),) for name in NAMES}
    stored = {name: StoredFile(size, sha256, pieces[name]) for name, (size, sha256) in written.items()}
    return Manifest(
        name=final,
        step=step,
        world_size=2,
        progress={"step": step},
        identity={},
        fingerprint={},
        tensors={name: TensorKind("uint8", (FILE_BYTES,)) for name in NAMES},
        files={**stored, "adapter/note.json": StoredFile(2, hashlib.sha256(b"{}").hexdigest())},
    )
