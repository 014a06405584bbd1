"""A rank's entry in a drill: wraps the one moment that it is told of, then runs the ordinary command line.

``python -m seatrial.drill.saboteur ORDER.json train CONFIG`` is a rank, and ``... ORDER.json writer RANK ...`` is what
the rank then starts to write its checkpoints. What is wrapped is where the program says what it does (heartbeats), and
the functions of the writing process; with nothing to do, nothing is wrapped.
"""

import os
import runpy
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from seatrial.drill.acts import Trigger
from seatrial.drill.fault import Order
from seatrial.errors import UsageError
from seatrial.records import append_jsonl
from seatrial.rundir import RunDir

_WRITER = "seatrial.dist.checkpoint.writer"


def main(arguments: list[str]) -> None:
    """Both entries."""
    file, verb, *rest = arguments
    order = Order.model_validate_json(Path(file).read_text())
    if verb == "writer":
        rank, connection, staged, size, parent = map(int, rest[:5])
        _write(order, rank, connection, staged, size, parent, rest[5])
        return
    rank = int(os.environ.get("RANK", 0))
    if rank == 0:
        _bear_witness(order)
    trigger = Trigger(order, rank, os.getpid())
    if trigger.injection is not None:
        if trigger.injection.on != "writer":  # the trainer says that it saves, too
            watch_heartbeat(trigger)
            watch_trainer(trigger)
        redirect_writer(file, rank)

    sys.argv = ["seatrial", verb, *rest]
    runpy.run_module("seatrial", run_name="__main__")


def _bear_witness(order: Order) -> None:
    """Say which checkpoints there are, and which of them are what their manifests say."""
    from seatrial.dist.checkpoint.place import look, storage_of

    try:
        found = look(storage_of(RunDir(order.run)), hashes=True)
    except UsageError:  # none yet
        found = []
    valid = [one.name for one in found if not one.problem]
    append_jsonl(order.witness, {"time": time.time(), "found": [one.name for one in found], "valid": valid})


def watch_heartbeat(trigger: Trigger) -> None:
    """Come to a moment whenever the rank's main thread says what it does."""
    from seatrial.dist.heartbeat import Heartbeat

    phase, mark, main_lane = Heartbeat.phase, Heartbeat.mark, Heartbeat()._at
    now: tuple[str, int] = ("", -1)

    def said(self: Heartbeat, name: str, step: int = -1) -> None:
        nonlocal now
        if self._at == main_lane and now != (name, step):
            trigger.reached(now[0], "after", now[1])
        phase(self, name, step)
        if self._at == main_lane:
            now = (name, step)
            trigger.reached(name, "before", step)

    def marked(self: Heartbeat) -> None:
        mark(self)
        if self._at == main_lane:
            trigger.reached(now[0], "during", now[1])

    _put(Heartbeat, "phase", said)
    _put(Heartbeat, "mark", marked)


def watch_trainer(trigger: Trigger) -> None:
    """Come to the middle of what a rank says only the beginning of; and spoil a loss."""
    from seatrial.dist.checkpoint import read, work
    from seatrial.dist.checkpoint.stage import Stage
    from seatrial.model import adapter
    from seatrial.train import lifecycle, step

    read_hashed, copy, save_adapter, pack_loss = work.read_hashed, Stage.copy, adapter.save_adapter, step.pack_loss

    def reading(*arguments: Any) -> Iterator[bytes]:
        for block in read_hashed(*arguments):
            yield block
            trigger.reached("restore", "during", -1)

    def copying(*arguments: Any) -> Any:
        trigger.reached("save.stage", "during", -1)
        return copy(*arguments)

    def exporting(*arguments: Any) -> None:
        save_adapter(*arguments)
        trigger.reached("export", "during", -1)

    def computing(*arguments: Any) -> Any:
        loss = pack_loss(*arguments)
        spoilt, trigger.spoils = trigger.spoils, False
        return loss * float("nan") if spoilt else loss

    _put(read, "read_hashed", reading)
    _put(Stage, "copy", copying)
    _put(lifecycle, "save_adapter", exporting)
    _put(step, "pack_loss", computing)


def redirect_writer(file: str, rank: int) -> None:
    """Have the rank start its writing process through this module."""
    from seatrial.dist.checkpoint import process

    class Popen(subprocess.Popen[bytes]):
        def __init__(self, arguments: list[str], **options: Any) -> None:
            if _WRITER in arguments:
                at = arguments.index(_WRITER)
                arguments = [
                    *arguments[:at],
                    "seatrial.drill.saboteur",
                    file,
                    "writer",
                    str(rank),
                    *arguments[at + 1 :],
                ]
            super().__init__(arguments, **options)

    _put(process, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": Popen}))


def _write(order: Order, rank: int, connection: int, staged: int, size: int, parent: int, place: str) -> None:
    from seatrial.dist.checkpoint import writer

    trigger = Trigger(order, rank, parent)
    if trigger.injection is not None:
        watch_writer(trigger)
    writer.main(connection, staged, size, parent, place)


def watch_writer(trigger: Trigger) -> None:
    """Come to a moment before, in the middle of, and after each part of a save."""
    import shutil

    from seatrial.dist.checkpoint import storage, work, writer
    from seatrial.dist.checkpoint.manifest import MANIFEST
    from seatrial.dist.checkpoint.storage import Directory

    step = [-1]

    def around(phase: str, work_of: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*arguments: Any) -> Any:
            directory = getattr(arguments[1], "directory", "") if len(arguments) > 1 else ""
            if directory:
                step[0] = int(directory.removeprefix("step-")[:8])
            trigger.reached(phase, "before", step[0])
            result = work_of(*arguments)
            trigger.reached(phase, "after", step[0])
            return result

        return wrapped

    _put(writer, "write", around("save.write", work.write))
    _put(work, "write_manifest", around("save.manifest", work.write_manifest))
    _put(Directory, "commit", around("save.commit", Directory.commit))
    _put(writer, "collect", around("save.collect", work.collect))

    synced, fsync, rmtree = storage._Synced, storage._fsync, shutil.rmtree
    write = synced.write

    def half(self: Any, data: bytes | memoryview) -> int:
        middle = len(data) // 2
        first = write(self, data[:middle])
        is_manifest = Path(self._file.name).name == MANIFEST
        trigger.reached("save.manifest" if is_manifest else "save.write", "during", step[0])
        return first + write(self, data[middle:])

    def syncing(directory: Path) -> None:
        if "." not in directory.name and not directory.name.startswith("step-"):
            trigger.reached("save.commit", "during", step[0])  # renamed, and not yet durable
        fsync(directory)

    def removing(path: Path) -> None:
        for first in sorted(file for file in path.rglob("*") if file.is_file())[:1]:
            first.unlink()
        trigger.reached("save.collect", "during", step[0])
        rmtree(path)

    _put(synced, "write", half)
    _put(storage, "_fsync", syncing)
    _put(storage, "shutil", SimpleNamespace(rmtree=removing))


def _put(place: object, name: str, changed: object) -> None:
    setattr(place, name, changed)


if __name__ == "__main__":
    main(sys.argv[1:])
