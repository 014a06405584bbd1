"""What happens to a copy of the state in the background until it is a checkpoint, or given up; and what is said."""

import hashlib
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from seatrial.dist.checkpoint.exchange import Exchange
from seatrial.dist.checkpoint.layout import Layout
from seatrial.dist.checkpoint.manifest import Manifest, StoredFile, step_of
from seatrial.dist.checkpoint.process import WriterProcess
from seatrial.dist.checkpoint.stage import Copied, Stage
from seatrial.dist.checkpoint.storage import Storage
from seatrial.dist.checkpoint.work import Collect, Collected, Commit, Discard, Failed, Write
from seatrial.dist.heartbeat import Heartbeat
from seatrial.dist.world import World
from seatrial.errors import IntegrityError, SeatrialError
from seatrial.hardware import GB
from seatrial.records import JsonObject
from seatrial.rundir import RunDir


@dataclass(frozen=True)
class Staged:
    """A copy of the state after ``step`` steps. ``number`` counts the copies of this attempt. ``began``: monotonic."""

    number: int
    step: int
    copied: Copied
    blocked_seconds: float
    began: float


@dataclass(frozen=True)
class Labels:
    """What every manifest of a run says alike."""

    identity: JsonObject
    fingerprint: JsonObject
    texts: dict[str, bytes]


class Saver:
    """Makes copies durable, one at a time, in a thread that only waits: for the writing process and for other ranks.

    ``token`` is this attempt's own, the same on all ranks.
    """

    def __init__(
        self,
        run: RunDir,
        world: World,
        storage: Storage,
        place: str,
        memory: Stage,
        layout: Layout,
        labels: Labels,
        *,
        heartbeat: Heartbeat,
        token: str,
        keep: int,
        stall_seconds: float,
    ) -> None:
        self._run, self._world, self._storage, self._place = run, world, storage, place
        self._memory, self._layout, self._labels = memory, layout, labels
        self._heartbeat = heartbeat
        self._token, self._keep, self._stall_seconds = token, keep, stall_seconds
        self._exchange = Exchange(token)
        self._writer = self._started()
        self.save_seconds: list[float] = []
        """What the saves so far took, from the copy to the commit. On the first rank."""

    @property
    def writer_pid(self) -> int:
        """Process id of what writes for this rank."""
        return self._writer.pid

    def wait_until_warm(self) -> None:
        """Until the writing process has started, so that the first save does not wait for that."""
        self._writer.wait_until_warm()

    def make_durable(self, staged: Staged, progress: JsonObject) -> str:
        """Write, commit, collect. Says why it failed, the same on all ranks; empty when it was committed."""
        try:
            return self._make_durable(staged, progress)
        finally:
            self._heartbeat.phase("done", staged.step)

    def _make_durable(self, staged: Staged, progress: JsonObject) -> str:
        temporary, final = self._storage.names_of(staged.step, self._token)
        mine, outcome = f"{staged.number}/rank-{self._world.rank}", f"{staged.number}/outcome"
        try:
            self._heartbeat.phase("save.write", staged.step)
            staged.copied.wait()
            files = tuple(file.write for file in self._layout.files[self._world.rank])
            self._exchange.tell(mine, self._ask(Write(temporary, files)))
            failure: str
            if not self._world.is_first:
                (failure,) = self._exchange.hear([outcome])
                return failure
            parts = self._exchange.hear([f"{staged.number}/rank-{rank}" for rank in range(self._world.size)])
            failure = self._commit(staged, progress, parts, temporary, final)
        except Exception as error:  # whatever it was: no other rank must wait for us, and no training end of it
            failure = f"{type(error).__name__}: {error}"
            with suppress(RuntimeError):  # of the store, whose host may be gone
                self._exchange.tell(mine, Failed(0, failure))
        if self._world.is_first:
            if failure:
                self._give_up(staged, temporary, failure)
            with suppress(RuntimeError):
                self._exchange.tell(outcome, failure)
            if not failure:
                self._collect(staged.step)
        return failure

    def abandon(self) -> None:
        """Other ranks will not answer any more: let the thread end."""
        self._exchange.abandon()
        self._writer.kill()

    def close(self) -> None:
        """End the writing process, which has nothing to do."""
        self._writer.kill()

    def _started(self) -> WriterProcess:
        return WriterProcess(self._memory.descriptor, self._memory.size, self._place)

    def _ask(self, task: Write | Commit | Collect | Discard) -> Any:
        """Have it done by the writing process, a new one when the last is dead."""
        if not self._writer.is_alive:
            self._writer.kill()
            self._writer = self._started()
        return self._writer.ask(task, stall_seconds=self._stall_seconds)

    def _commit(self, staged: Staged, progress: JsonObject, parts: list[Any], temporary: str, final: str) -> str:
        """Why it was not committed."""
        for rank, part in enumerate(parts):
            if isinstance(part, Failed):
                return f"{part.reason} (rank {rank})"
        self._heartbeat.phase("save.manifest", staged.step)
        manifest = self._manifest(staged, progress, parts, final)
        self._heartbeat.phase("save.commit", staged.step)
        answer = self._ask(Commit(temporary, manifest, self._labels.texts))
        if isinstance(answer, Failed):
            return f"{answer.reason} (rank {self._world.rank})"
        seconds = time.monotonic() - staged.began
        self.save_seconds.append(staged.blocked_seconds + seconds)
        self._run.event(
            "save",
            step=staged.step,
            seconds_blocked=staged.blocked_seconds,
            seconds=seconds,
            checkpoint=final,
            bytes=manifest.total_bytes,
        )
        return ""

    def _manifest(self, staged: Staged, progress: JsonObject, parts: list[Any], final: str) -> Manifest:
        """Raises IntegrityError when other files were written than planned."""
        texts = self._labels.texts
        files = {name: StoredFile(len(text), hashlib.sha256(text).hexdigest()) for name, text in texts.items()}
        for planned, written in zip(self._layout.files, parts, strict=True):
            if (names := {file.write.name for file in planned}) != written.keys():
                raise IntegrityError(f"step {staged.step}: planned {sorted(names)}, written {sorted(written)}")
            for file in planned:
                size, sha256 = written[file.write.name]
                files[file.write.name] = StoredFile(size, sha256, file.pieces)
        return Manifest(
            name=final,
            step=staged.step,
            world_size=self._world.size,
            progress=progress,
            identity=self._labels.identity,
            fingerprint=self._labels.fingerprint,
            tensors=dict(self._layout.tensors),
            files=files,
        )

    def _give_up(self, staged: Staged, temporary: str, reason: str) -> None:
        """Clean up after a save that failed, and say so; training goes on from what it has."""
        self._ask(Discard(temporary))  # first of all: on a full disk there is no room to say anything
        self._run.event("save_failed", step=staged.step, reason=reason)
        try:
            said = self._alarm(staged.step, reason)
        except (OSError, SeatrialError) as error:
            said = f"step {staged.step} was not saved: {reason}; nor can the storage be looked at: {error}"
        self._run.event("alarm", what="checkpoint not saved", reason=said)

    def _alarm(self, step: int, reason: str) -> str:
        good = self._storage.committed()
        said = f"step {step} was not saved: {reason}; "
        free, needed = self._storage.free_bytes(), self._layout.total_bytes
        if free is not None and free < needed:
            said += (
                f"{self._storage.label} needs {_amount(needed)} for it and has {_amount(free)} free: "
                f"{_amount(needed - free)} are missing; "
            )
        kept = f"the checkpoint of step {step_of(good[0])} stays" if good else "there is no checkpoint yet"
        return f"{said}{kept}, and training goes on to the next save"

    def _collect(self, step: int) -> None:
        self._heartbeat.phase("save.collect", step)
        answer = self._ask(Collect(self._keep))
        if isinstance(answer, Failed):
            self._run.event("alarm", what="old checkpoints not deleted", reason=answer.reason)
            return
        assert isinstance(answer, Collected)
        for name, reason in answer.corrupt:
            self._run.event("fault", what="corrupt checkpoint", checkpoint=name, reason=reason)


def _amount(size: int) -> str:
    return f"{size / GB:.3g} GB" if size >= GB / 10 else f"{size / 1e6:.3g} MB"
