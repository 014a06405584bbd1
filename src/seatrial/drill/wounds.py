"""Damage to files while no training runs: what a bad disk, a careless copy or a full file server leaves behind."""

import json
from pathlib import Path

from seatrial.dist.checkpoint.manifest import MANIFEST
from seatrial.dist.checkpoint.place import storage_of
from seatrial.drill.fault import Wound
from seatrial.errors import SeatrialError
from seatrial.rundir import RunDir

HOLE_BYTES = 512
_SPARE = ".before"


def wound(kind: Wound, run: RunDir, data: Path) -> str:
    """Damage the newest checkpoint, or a row of the data; what was damaged, empty when there is nothing to damage."""
    if kind == "bad row":
        return _spoil_row(data / "records.jsonl")
    names = storage_of(run).committed()
    if not names:
        return ""
    folder = run.checkpoints / names[0]
    if kind == "missing manifest":
        (folder / MANIFEST).unlink()
        return names[0]
    shard = max((path for path in folder.rglob("*.safetensors")), key=lambda path: path.stat().st_size)
    if kind == "missing shard":
        shard.unlink()
    elif kind == "truncation":
        with shard.open("r+b") as file:
            file.truncate(shard.stat().st_size - 1)
    else:
        content = bytearray(shard.read_bytes())
        damage(content, kind)
        shard.write_bytes(content)
    return names[0]


def damage(content: bytearray, kind: Wound) -> None:
    """Change bytes in the last third, where a safetensors file has numbers; the length stays."""
    at = len(content) * 2 // 3
    if kind == "bit flip":
        content[at] ^= 1
        return
    while not any(content[at : at + HOLE_BYTES]):  # zeros would be no hole
        at -= HOLE_BYTES
        if at < 0:
            raise SeatrialError("the file holds nothing but zeros")
    content[at : at + HOLE_BYTES] = bytes(len(content[at : at + HOLE_BYTES]))


def _spoil_row(file: Path) -> str:
    """Cut a quote out of a row in the middle, so that it is no JSON."""
    lines = file.read_bytes().splitlines(keepends=True)
    file.with_suffix(_SPARE).write_bytes(b"".join(lines))
    number = len(lines) // 2
    lines[number] = lines[number].replace(b'"', b"", 1)
    file.write_bytes(b"".join(lines))
    try:
        json.loads(lines[number])
    except ValueError:
        return f"{file.name}:{number + 1}"
    raise SeatrialError(f"{file}: row {number + 1} is still valid JSON")


def mend_row(data: Path) -> None:
    """Bring the rows back."""
    file = data / "records.jsonl"
    file.write_bytes(file.with_suffix(_SPARE).read_bytes())
