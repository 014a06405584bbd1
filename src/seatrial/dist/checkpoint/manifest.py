"""What a checkpoint says of itself, as values and as JSON. No torch: the writing process and the CLI read it too."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from seatrial.errors import IntegrityError, UsageError

MANIFEST = "manifest.json"
FORMAT = 1
_NAME = re.compile(r"step-(\d{8,})(-[0-9a-f]{8})?")


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """A box of one tensor, and the byte of the file at which its numbers begin, in rows as they lie in memory."""

    tensor: str
    offsets: tuple[int, ...]
    shape: tuple[int, ...]
    begin: int


class StoredFile(msgspec.Struct, frozen=True):
    """``pieces`` is empty for files that no tensor is loaded from."""

    size: int
    sha256: str
    pieces: tuple[Piece, ...] = ()


class TensorKind(msgspec.Struct, frozen=True, array_like=True):
    """``dtype`` by torch's name, without 'torch.'."""

    dtype: str
    shape: tuple[int, ...]


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """``identity``: whose checkpoint it is; ``fingerprint``: under what bits may be expected to repeat."""

    format: int = FORMAT
    name: str
    step: int
    world_size: int
    progress: dict[str, Any]
    identity: dict[str, Any]
    fingerprint: dict[str, Any]
    tensors: dict[str, TensorKind]
    files: dict[str, StoredFile]

    @property
    def total_bytes(self) -> int:
        return sum(file.size for file in self.files.values())


class _Header(msgspec.Struct):
    format: int = 0


# The last line: the sha256 of everything before it, so that a flipped bit in the manifest is found like any other.
_SEAL = b',\n "sha256": "%s"\n}\n'
_SEAL_BYTES = len(_SEAL % bytes(64))


def encode_manifest(manifest: Manifest) -> bytes:
    """JSON, indented, with the sha256 of what precedes it as its last line."""
    body = msgspec.json.format(msgspec.json.encode(manifest), indent=1).removesuffix(b"\n}")
    return body + _seal(body)


def decode_manifest(text: bytes, where: str) -> Manifest:
    """The manifest that ``text`` holds.

    Raises:
        IntegrityError: torn, damaged, or not a manifest.
        UsageError: sound, but of another version of seatrial.
    """
    if _seal(text[:-_SEAL_BYTES]) != text[-_SEAL_BYTES:]:
        raise IntegrityError(f"{where}: no readable {MANIFEST}: torn, or damaged")
    try:
        version = msgspec.json.decode(text, type=_Header).format
        if version != FORMAT:
            raise UsageError(
                f"{where}: a checkpoint of format {version}, written by another version of seatrial than this one, "
                f"which reads format {FORMAT}; resume with that version, or begin again with --fresh"
            )
        return msgspec.json.decode(text, type=Manifest)
    except msgspec.MsgspecError as error:
        raise IntegrityError(f"{where}: no readable {MANIFEST}: {error}") from error


def _seal(body: bytes) -> bytes:
    return _SEAL % hashlib.sha256(body).hexdigest().encode()


def step_of(name: str) -> int | None:
    """The step of a committed checkpoint's name; None for any other name, temporary and quarantined ones included."""
    match = _NAME.fullmatch(name)
    return int(match[1]) if match else None


def newest_first(names: list[str]) -> list[str]:
    """Those of ``names`` that committed checkpoints bear."""
    return sorted((name for name in names if step_of(name) is not None), key=lambda n: (step_of(n), n), reverse=True)


def first_difference(before: Mapping[str, Any], now: Mapping[str, Any], prefix: str = "") -> str:
    """The first key whose value differs, as 'key was A, is B'; empty when there is none."""
    for key in sorted(before.keys() | now.keys()):
        old, new, name = before.get(key), now.get(key), f"{prefix}{key}"
        if isinstance(old, dict) and isinstance(new, dict):
            if inner := first_difference(old, new, f"{name}."):
                return inner
        elif old != new:
            return f"{name} was {old}, is {new}"
    return ""
