"""The checkpoints of one run: staged between two steps, made durable in the background, found again at the start."""

import hashlib
import secrets
import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from seatrial.dist.checkpoint.exchange import Exchange
from seatrial.dist.checkpoint.layout import WholeFile, plan_layout
from seatrial.dist.checkpoint.manifest import MANIFEST, Manifest, StoredFile, first_difference, step_of
from seatrial.dist.checkpoint.process import WriterProcess
from seatrial.dist.checkpoint.read import load
from seatrial.dist.checkpoint.schedule import interval_seconds
from seatrial.dist.checkpoint.stage import Copied, Stage
from seatrial.dist.checkpoint.storage import await_file, open_storage
from seatrial.dist.checkpoint.work import Collect, Collected, Commit, Discard, Failed, Write, read_manifest
from seatrial.dist.parallel import whole
from seatrial.dist.world import World
from seatrial.errors import IntegrityError, SeatrialError, UsageError
from seatrial.hardware import GB
from seatrial.records import JsonObject
from seatrial.rundir import RunDir
from seatrial.settings import CheckpointSettings

SLOW_SECONDS = 60.0
"""A save under way for longer, when the next is due, is worth an alarm."""

ABANDON_SECONDS = 10.0
"""When a training fails, what the save under way gets to end. Other ranks may be gone and never answer."""

STALE_LISTING_SECONDS = 10.0
"""How long a checkpoint that events.jsonl names may be missing from a listing."""


@dataclass(frozen=True)
class _Staged:
    number: int
    step: int
    copied: Copied
    blocked_seconds: float
    began: float


class Checkpoints:
    """Saves and finds the checkpoints of one run. All ranks make it, and all call the same methods in the same order.

    A save is two calls: :meth:`stage` copies the state between two steps and costs the host milliseconds;
    :meth:`write`, once the step is known to be sound, has the copy written in the background. Whether it was committed
    is in ``events.jsonl``, and :meth:`wait` says it.

    Args:
        state: what :meth:`stage` copies and :meth:`load_latest` fills: always these tensors.
        identity: whose checkpoints these are; others are refused.
        fingerprint: under what bits may be expected to repeat; recorded.
        whole_file: a part of the state that is stored in another library's layout.
        stall_seconds: how long storage may take no data before a save is given up.

    Raises:
        UsageError: ``checkpoint.dir`` cannot be opened.
        ImpossibleConfiguration: host memory does not hold a copy of the state.
    """

    def __init__(
        self,
        run: RunDir,
        world: World,
        state: Mapping[str, Tensor],
        settings: CheckpointSettings,
        *,
        identity: JsonObject | None = None,
        fingerprint: JsonObject | None = None,
        whole_file: WholeFile | None = None,
        stall_seconds: float = 600.0,
    ) -> None:
        self._run, self._world, self._settings = run, world, settings
        self.state = dict(state)
        self._identity, self._fingerprint, self._whole_file = identity or {}, fingerprint or {}, whole_file
        self._stall_seconds = stall_seconds
        self._place = place_of(run, settings)
        self._storage = open_storage(self._place)
        self._group = dist.new_group(backend="gloo")
        token = [secrets.token_hex(4)]
        dist.broadcast_object_list(token, src=0, group=self._group)
        self._token = token[0]
        self._exchange = Exchange(self._token)
        self._layout = plan_layout(self.state, whole_file, self._group, world.rank)
        self._boxes = [box for file in self._layout.files[world.rank] for box in file.boxes]
        self._memory = Stage(self._layout.rank_bytes(world.rank), world.device, ranks_here=world.local_size)
        self._parts = [
            self._memory.part(begin, box.shape, box.dtype)
            for file in self._layout.files[world.rank]
            for begin, box in zip(_begins(file.write.begin, [b.size for b in file.boxes]), file.boxes, strict=True)
        ]
        self._thread = ThreadPoolExecutor(1, "checkpoint")
        self._writer = WriterProcess(self._memory.descriptor, self._memory.size, self._place)
        self._ready = self._thread.submit(self._get_ready)
        self._staged: _Staged | None = None
        self._pending: Future[str] | None = None
        self._last_staged = _Staged(0, -1, Copied(None), 0.0, time.monotonic())
        self._save_seconds: list[float] = []
        self._alarmed = -1
        self._due, self._memory_free = False, True
        if world.is_first:
            for leftover in self._storage.leftovers():
                self._storage.remove(leftover)

    # Saving.

    @property
    def copied(self) -> Copied:
        """The newest copy: the state may be changed only after :meth:`Copied.hold`."""
        return self._last_staged.copied

    @property
    def busy(self) -> bool:
        """Whether this rank has a save under way, so that the memory for the next is not free."""
        return self._staged is not None or (self._pending is not None and not self._pending.done())

    @property
    def writer_pid(self) -> int:
        """Process id of what writes for this rank."""
        return self._writer.pid

    def due_by_time(self) -> bool:
        """Whether it is time for the next save, by Young and Daly. The first rank's clock decides, and tells."""
        hours = self._settings.mtbf_hours
        if hours is None or not self._world.is_first:
            return False
        return time.monotonic() - self._last_staged.began > interval_seconds(self._save_seconds, hours)

    def confirm(self, step: int, progress: JsonObject, due: bool, saving: bool) -> None:
        """Take note of what the ranks agreed on in a step that went well; its copy, if there is one, may be written.

        Args:
            step: how many steps were done after it.
            due: some rank's clock asked for a save.
            saving: some rank had one under way when the step was queued.
        """
        self._due = self._due or due
        self._memory_free = not saving and step > self._last_staged.step
        if self._staged is not None and self._staged.step == step:
            self.write(progress)

    def stage_if_due(self, step: int) -> None:
        """Stage when it is time, by steps or by the clock, and the memory for the copy is free on every rank.

        A save that comes due while the one before it is being written waits for it: storage that is slow, or stuck,
        stops no training.
        """
        every = self._settings.every_steps
        self._due = self._due or (every is not None and step % every == 0)
        if self._due and self._memory_free:
            self.stage(step)
        elif self._due:
            self._alarm_if_slow()

    def save(self, step: int, progress: JsonObject) -> str:
        """Stage, write and wait; why it failed."""
        self.stage(step)
        self.write(progress)
        return self.wait()

    def stage(self, step: int) -> None:
        """Begin to copy the state as it is after all device work queued so far. Waits for a save under way.

        The state may be changed only after :meth:`Copied.hold` of :attr:`copied`. Collective where the state is sharded
        and a part of it is stored whole.
        """
        began = time.monotonic()
        assert self._staged is None, "what was staged before is to be written first"
        self.wait()
        self._ready.result()
        if not self._writer.is_alive:
            self._restart_writer()
        self._due = self._memory_free = False
        copied = self._memory.copy(self._parts, self._sources())
        now = time.monotonic()
        self._last_staged = self._staged = _Staged(self._last_staged.number + 1, step, copied, now - began, now)

    def write(self, progress: JsonObject) -> None:
        """Make durable what was staged, in the background. ``progress`` comes back from :meth:`load_latest`."""
        assert self._staged is not None, "stage before you write"
        staged, self._staged = self._staged, None
        self._pending = self._thread.submit(self._make_durable, staged, progress)

    def wait(self) -> str:
        """Until no save is under way; says why the last one failed, empty when it was committed."""
        return self._pending.result() if self._pending is not None else ""

    def _alarm_if_slow(self) -> None:
        """Say once that the next save is due while one has been under way for long."""
        seconds = time.monotonic() - self._last_staged.began
        if self._world.is_first and seconds > SLOW_SECONDS and self._alarmed != self._last_staged.step:
            self._alarmed = self._last_staged.step
            reason = (
                f"the save of step {self._alarmed} has been under way for {seconds:.0f} s; the next one waits for it"
            )
            self._run.event("alarm", what="slow checkpoint", reason=reason)

    def _sources(self) -> list[Tensor]:
        """What this rank copies, box by box."""
        apart = {box.tensor for box in self._whole_file.boxes} if self._whole_file is not None else set()
        gathered = {name: whole(self.state[name]) for name in sorted(apart)}  # collective when sharded
        sources = []
        for box in self._boxes:
            tensor = gathered.get(box.tensor, self.state[box.tensor])
            if box.tensor in apart:
                tensor = tensor[box.offsets[0] : box.offsets[0] + box.shape[0]]
            sources.append(_local(tensor))
        return sources

    def _get_ready(self) -> None:
        self._memory.pin()
        self._writer.wait_until_warm()

    def _restart_writer(self) -> None:
        self._writer.kill()
        self._writer = WriterProcess(self._memory.descriptor, self._memory.size, self._place)

    # In the background thread.

    def _make_durable(self, staged: _Staged, progress: JsonObject) -> str:
        """Write, commit, collect; why it failed, the same on all ranks."""
        temporary, final = self._storage.names_of(staged.step, self._token)
        said, outcome = f"{staged.number}/rank-", f"{staged.number}/outcome"
        try:
            staged.copied.wait()
            files = tuple(file.write for file in self._layout.files[self._world.rank])
            written = self._writer.ask(Write(temporary, files), stall_seconds=self._stall_seconds)
            self._exchange.tell(f"{said}{self._world.rank}", written)
            if not self._world.is_first:
                failure: str = self._exchange.hear([outcome])[0]
                return failure
            parts = self._exchange.hear([f"{said}{rank}" for rank in range(self._world.size)])
            failure = self._commit(staged, progress, parts, temporary, final)
            self._exchange.tell(outcome, failure)
            if not failure:
                self._collect()
            return failure
        except Exception as error:  # whatever it was, the others must not wait for it, nor the training end of it
            failure = f"{type(error).__name__}: {error}"
            with suppress(RuntimeError):  # the store's host may be gone
                self._exchange.tell(f"{said}{self._world.rank}", Failed(0, failure))
                if self._world.is_first:
                    self._exchange.tell(outcome, failure)
            return failure

    def _commit(self, staged: _Staged, progress: JsonObject, parts: list[Any], temporary: str, final: str) -> str:
        """Why it was not committed."""
        failed = {rank: part for rank, part in enumerate(parts) if isinstance(part, Failed)}
        if not failed:
            texts = dict(self._whole_file.texts) if self._whole_file is not None else {}
            manifest = self._manifest(staged, progress, parts, final, texts)
            answer = self._writer.ask(Commit(temporary, manifest, texts), stall_seconds=self._stall_seconds)
            failed = {0: answer} if isinstance(answer, Failed) else {}
        if failed:
            return self._give_up(staged, temporary, *next(iter(failed.items())))
        seconds = time.monotonic() - staged.began
        self._save_seconds.append(staged.blocked_seconds + seconds)
        self._run.event(
            "save",
            step=staged.step,
            seconds_blocked=staged.blocked_seconds,
            seconds=seconds,
            checkpoint=final,
            bytes=manifest.total_bytes,
        )
        return ""

    def _manifest(
        self, staged: _Staged, progress: JsonObject, parts: list[Any], final: str, texts: Mapping[str, bytes]
    ) -> Manifest:
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
            identity=self._identity,
            fingerprint=self._fingerprint,
            tensors=dict(self._layout.tensors),
            files=files,
        )

    def _give_up(self, staged: _Staged, temporary: str, rank: int, failed: Failed) -> str:
        """Clean up after a save that failed, and say so; training goes on from what it has."""
        if not self._writer.is_alive:
            self._restart_writer()
        self._writer.ask(Discard(temporary), stall_seconds=self._stall_seconds)
        reason = f"{failed.reason} (rank {rank})"
        self._run.event("save_failed", step=staged.step, reason=reason)
        self._run.event("alarm", what="checkpoint not saved", reason=self._alarm(staged.step, reason))
        return reason

    def _alarm(self, step: int, reason: str) -> str:
        good = self._storage.committed()
        said = f"step {step} was not saved: {reason}; "
        free, needed = self._storage.free_bytes(), self._layout.total_bytes
        if free is not None and free < needed:
            said += (
                f"{self._storage.label} needs {needed / GB:.3g} GB for it and has {free / GB:.3g} GB, "
                f"{(needed - free) / GB:.3g} GB are missing; "
            )
        kept = f"the checkpoint of step {step_of(good[0])} stays" if good else "there is no checkpoint yet"
        return f"{said}{kept}, and training goes on to the next save"

    def _collect(self) -> None:
        answer = self._writer.ask(Collect(self._settings.keep), stall_seconds=self._stall_seconds)
        if isinstance(answer, Failed):
            self._run.event("alarm", what="old checkpoints not deleted", reason=answer.reason)
            return
        assert isinstance(answer, Collected)
        for name, reason in answer.corrupt:
            self._run.event("fault", what="corrupt checkpoint", checkpoint=name, reason=reason)

    # Loading.

    def load_latest(self) -> JsonObject | None:
        """Fill the state in place from the newest valid checkpoint and return its progress; None when there is none.

        The first rank judges and tells the others, so that ranks cannot disagree about a shared file system. A
        checkpoint that is not what its manifest says is set aside and the one before it is tried.

        Raises:
            UsageError: the newest is of another model, other data or other settings.
            IntegrityError: there are checkpoints, and none is valid.
        """
        self.wait()
        self.copied.hold()
        self._ready.result()
        while (manifest := self._agree_on_newest()) is not None:
            try:
                load(self._storage, manifest, self.state, self._group, self._world.rank)
                return manifest.progress
            except IntegrityError as error:
                if self._world.is_first:
                    self._set_aside(manifest.name, error)
        return None

    def _agree_on_newest(self) -> Manifest | None:
        """The first rank's choice, told to all. What it refuses, all refuse."""
        chosen: list[Manifest | SeatrialError | None] = [None]
        if self._world.is_first:
            try:
                chosen = [self._newest()]
            except SeatrialError as error:
                chosen = [error]
        dist.broadcast_object_list(chosen, src=0, group=self._group)
        if isinstance(chosen[0], SeatrialError):
            raise chosen[0]
        return chosen[0]

    def _newest(self) -> Manifest | None:
        self._await_listed()
        for name in self._storage.committed():
            try:
                manifest = read_manifest(self._storage, name)
            except IntegrityError as error:
                self._set_aside(name, error)
                continue
            self._refuse_another(manifest)
            return manifest
        if aside := self._storage.quarantined():
            raise IntegrityError(
                f"{self._storage.label}: no checkpoint is valid ({', '.join(aside)}); "
                "bring one back from a copy, or begin again with --fresh"
            )
        return None

    def _await_listed(self) -> None:
        """A listing may lag behind (NFS): a checkpoint that this run saved last is looked for by its name."""
        saved = [event["checkpoint"] for event in self._run.read_events() if event["event"] == "save"]
        if saved and saved[-1] not in self._storage.committed() and not self._storage.quarantined():
            try:
                await_file(self._storage, f"{saved[-1]}/{MANIFEST}", seconds=STALE_LISTING_SECONDS)
            except IntegrityError as error:
                if not self._storage.committed():
                    raise IntegrityError(
                        f"{error}: events.jsonl says that it was saved, and there is no other; is its storage mounted? "
                        "if it is lost, begin again with --fresh"
                    ) from error
                self._run.event("fault", what="missing checkpoint", checkpoint=saved[-1], reason=str(error))

    def _refuse_another(self, manifest: Manifest) -> None:
        if difference := first_difference(manifest.identity, self._identity):
            raise UsageError(
                f"{self._storage.label}/{manifest.name} is a checkpoint of another training: {difference}; begin again "
                f"with --fresh, or in another run.dir from its weights with --fork {self._run.path}"
            )

    def _set_aside(self, name: str, error: IntegrityError) -> None:
        self._run.event("fault", what="corrupt checkpoint", checkpoint=name, reason=str(error))
        self._storage.quarantine(name, str(error))

    # Ending.

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        """Let the save under way end, for as long as other ranks can be expected to answer."""
        if self._pending is not None:
            try:
                patience = ABANDON_SECONDS if kind is not KeyboardInterrupt else 0.0
                self._pending.result(patience if kind is not None else None)
            except TimeoutError:
                self._exchange.abandon()
                self._writer.kill()
        self._thread.shutdown()
        self._writer.kill()
        self._parts.clear()
        self._memory.close()


def place_of(run: RunDir, settings: CheckpointSettings) -> str:
    """A path or URL: where a run's checkpoints are."""
    return settings.dir if settings.dir is not None else str(run.checkpoints)


def _begins(begin: int, sizes: list[int]) -> list[int]:
    begins = []
    for size in sizes:
        begins.append(begin)
        begin += size
    return begins


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
