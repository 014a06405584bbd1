"""The run directory: the one contract between whatever trains and whatever shows, evaluates or exports it."""

import errno
import json
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from seatrial.errors import SeatrialError, UsageError
from seatrial.lock import Holder, locked
from seatrial.records import JsonObject, append_jsonl, drop_torn_line, read_jsonl, write_json


@dataclass(frozen=True)
class RunDir:
    """Names of everything a run leaves behind. Creating the value touches no disk."""

    path: Path
    _waiting: list[tuple[Path, JsonObject]] = field(default_factory=list, init=False, compare=False, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False, compare=False, repr=False)

    @property
    def settings(self) -> Path:
        return self.path / "settings.json"

    @property
    def provenance(self) -> Path:
        return self.path / "provenance.json"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def ceilings(self) -> Path:
        """What the GPUs of this run sustain in large products, by name of GPU."""
        return self.path / "ceilings.json"

    @property
    def outcome(self) -> Path:
        return self.path / "outcome.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def adapter(self) -> Path:
        return self.path / "adapter"

    @property
    def model(self) -> Path:
        return self.path / "model"

    @property
    def evals(self) -> Path:
        return self.path / "evals"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def stop_file(self) -> Path:
        """Creating this file asks the run to save and stop."""
        return self.path / "stop"

    def prepare(self) -> None:
        """Make the directory and mend record files that a kill cut off. Rank 0 only."""
        self.checkpoints.mkdir(parents=True, exist_ok=True)
        drop_torn_line(self.metrics)
        drop_torn_line(self.events)

    def event(self, kind: str, **fields: Any) -> None:
        """Append to ``events.jsonl``; ``time`` is seconds since the epoch."""
        self.append(self.events, {"event": kind, "time": time.time(), **fields})

    def append(self, path: Path, record: JsonObject) -> None:
        """Append to a record file. While the disk is full, records wait in memory for the next call: none is lost."""
        with self._lock:
            self._waiting.append((path, record))
            try:
                while self._waiting:
                    append_jsonl(*self._waiting[0])
                    del self._waiting[0]
            except OSError as error:
                if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                    raise
                waiting = len(self._waiting)
                if waiting.bit_count() == 1:  # of 1, 2, 4, ...: not at every step
                    print(f"{path}: {error.strerror}; {waiting} records wait", file=sys.stderr)  # noqa: T201

    def read_events(self) -> list[JsonObject]:
        return list(read_jsonl(self.events))

    def read_metrics(self) -> list[JsonObject]:
        return list(read_jsonl(self.metrics))

    def read_settings(self) -> JsonObject:
        if not self.settings.is_file():
            raise UsageError(f"{self.path} is not a run directory: it has no settings.json")
        settings: JsonObject = json.loads(self.settings.read_text())
        return settings

    def write_outcome(self, status: Literal["done", "preempted", "failed"], reason: str, exit_code: int) -> None:
        write_json(self.outcome, {"status": status, "reason": reason, "exit_code": exit_code, "time": time.time()})

    def read_outcome(self) -> JsonObject | None:
        try:
            text = self.outcome.read_text()
        except FileNotFoundError:  # none yet, or taken away this moment by the next attempt
            return None
        outcome: JsonObject = json.loads(text)
        return outcome

    @contextmanager
    def locked(self) -> Iterator[Holder | None]:
        """Hold the directory for this process; a second run in it is refused (:func:`seatrial.lock.locked`).

        A holder on another node gives a sign of life through its watchdog.
        """
        with locked(self.path, self._first_node_said) as before:
            yield before

    def node_report(self, node: int) -> Path:
        """What a node told the others last of its ranks."""
        return self.path / "heartbeats" / f"node-{node:05d}.json"

    def _first_node_said(self) -> str:
        try:
            return self.node_report(0).read_text()
        except OSError:
            return ""

    def exit_code(self, launcher_code: int, before: JsonObject | None) -> int:
        """What a launcher whose command ended with ``launcher_code`` must end with: torchrun makes a 1 of every code.

        Args:
            before: the outcome that was there before it began, which is not that of this command.
        """
        outcome = self.read_outcome()
        if outcome is not None and outcome != before:
            return int(outcome["exit_code"])
        return SeatrialError.exit_code if launcher_code == 1 or launcher_code < 0 else launcher_code
