"""The checkpoints of one run: staged between two steps, made durable in the background, found again at the start."""

import secrets
import statistics
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import Self, TypeVar

import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor

from seatrial.dist.checkpoint.find import agree, newest, newest_of_another, set_aside, set_newer_aside
from seatrial.dist.checkpoint.layout import WholeFile, plan_layout
from seatrial.dist.checkpoint.manifest import Manifest, first_difference
from seatrial.dist.checkpoint.place import place_of, storage_of
from seatrial.dist.checkpoint.read import load
from seatrial.dist.checkpoint.saver import Labels, Saver, Staged
from seatrial.dist.checkpoint.schedule import interval_seconds
from seatrial.dist.checkpoint.stage import Copied, Stage
from seatrial.dist.checkpoint.storage import open_storage
from seatrial.dist.heartbeat import Heartbeat
from seatrial.dist.parallel import whole
from seatrial.dist.world import World
from seatrial.errors import IntegrityError
from seatrial.records import JsonObject
from seatrial.rundir import RunDir
from seatrial.settings import CheckpointSettings

Result = TypeVar("Result")

SLOW_SECONDS = 60.0
"""A save under way for longer, when the next is due, is worth an alarm."""

ABANDON_SECONDS = 10.0
"""When a training fails, what the save under way gets to end. Other ranks may be gone and never answer."""

LEAVE_SECONDS = 1.0
"""What the thread of a save that was abandoned gets to notice. One that asks a rank whose node is gone never does: its
connection is not closed, and the kernel sends again for a quarter of an hour."""

WEIGHT = "weight/"
"""What the names of weights begin with in the state; the rest is the optimizer's."""


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
        heartbeat: where this rank says that it saves.
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
        heartbeat: Heartbeat | None = None,
        stall_seconds: float = 600.0,
    ) -> None:
        self._heartbeat = heartbeat or Heartbeat()
        self._run, self._world, self._rank, self._settings = run, world, world.rank, settings
        self.state = dict(state)
        self._identity, self._fingerprint = identity or {}, fingerprint or {}
        self._whole_file = whole_file
        place = place_of(run, settings)
        self._storage = open_storage(place)
        self._group = dist.new_group(backend="gloo")
        token = [secrets.token_hex(4)]
        dist.broadcast_object_list(token, src=0, group=self._group)
        layout = plan_layout(self.state, whole_file, self._group, self._rank)
        self._boxes = [box for file in layout.files[self._rank] for box in file.boxes]
        self._memory = Stage(layout.rank_bytes(self._rank), world.device, ranks_here=world.local_size)
        self._parts = [
            self._memory.part(begin, box.shape, box.dtype)
            for file in layout.files[self._rank]
            for begin, box in zip(file.begins, file.boxes, strict=True)
        ]
        labels = Labels(self._identity, self._fingerprint, dict(whole_file.texts) if whole_file is not None else {})
        self._saver = Saver(
            run,
            world,
            self._storage,
            place,
            self._memory,
            layout,
            labels,
            heartbeat=self._heartbeat.lane("writer"),
            token=token[0],
            keep=settings.keep,
            stall_seconds=stall_seconds,
        )
        self._thread = _Thread()
        self._pinned = self._thread.submit(self._memory.pin)  # seconds, while the model is compiled
        self._staged: Staged | None = None
        self._pending: Future[str] | None = None
        self._last_staged = Staged(0, -1, Copied(), 0.0, time.monotonic())
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
        return self._saver.writer_pid

    def due_by_time(self) -> bool:
        """Whether it is time for the next save, by Young and Daly. The first rank's clock decides, and tells."""
        hours = self._settings.mtbf_hours
        if hours is None or not self._world.is_first:
            return False
        return time.monotonic() - self._last_staged.began > interval_seconds(self._saver.save_seconds, hours)

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

    @property
    def expected_seconds(self) -> float:
        """What a save takes, by those so far; 0 before the first. The first rank knows."""
        return statistics.median(self._saver.save_seconds or [0.0])

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
        """Stage, write and wait; why it failed. A step that was staged and written already is waited for."""
        if step != self._last_staged.step:
            self.stage(step)
            self.write(progress)
        self._heartbeat.phase("save.write", step)
        return self.wait()

    def stage(self, step: int) -> None:
        """Begin to copy the state as it is after all device work queued so far. Waits for a save under way.

        The state may be changed only after :meth:`Copied.hold` of :attr:`copied`. Collective where the state is sharded
        and a part of it is stored whole.
        """
        began = time.monotonic()
        assert self._staged is None, "what was staged before is to be written first"
        if self.busy:  # slow storage is no step that hangs
            self._heartbeat.phase("save.write", self._last_staged.step)
        self.wait()
        self._pinned.result()
        self._due = self._memory_free = False
        self._heartbeat.phase("save.stage", step)
        copied = self._memory.copy(self._parts, self._sources())
        now = time.monotonic()
        self._last_staged = self._staged = Staged(self._last_staged.number + 1, step, copied, now - began, now)

    def write(self, progress: JsonObject) -> None:
        """Make durable what was staged, in the background. ``progress`` comes back from :meth:`load_latest`."""
        assert self._staged is not None, "stage before you write"
        staged, self._staged = self._staged, None
        self._pending = self._thread.submit(partial(self._saver.make_durable, staged, progress))

    def forget(self) -> None:
        """Do not write what was staged, since the step before it went wrong; a save is due again."""
        self._due = True
        if self._staged is not None:
            self._staged, self._last_staged = None, replace(self._last_staged, step=-1)

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

    # Loading.

    def load_latest(self, *, at_most: int | None = None) -> JsonObject | None:
        """Fill the state in place from the newest valid checkpoint and return its progress; None when there is none.

        A checkpoint that is not what its manifest says is set aside and the one before it is tried.

        Args:
            at_most: look only at those of so many steps.

        Raises:
            UsageError: the newest is of another model, other data or other settings.
            IntegrityError: there are checkpoints, and none is valid.
        """
        self._heartbeat.phase("restore")
        self.wait()
        self.copied.hold()
        self._saver.wait_until_warm()

        def choose() -> Manifest | None:
            return newest(self._storage, self._run, self._identity, at_most=at_most)

        while manifest := agree(choose, self._group, self._rank):
            try:
                load(self._storage, manifest, self.state, self._group, self._rank)
                self._alarm_if_bits_may_differ(manifest)
                return manifest.progress
            except IntegrityError as error:
                if self._world.is_first:
                    set_aside(self._storage, self._run, manifest.name, error)
        return None

    def _alarm_if_bits_may_differ(self, manifest: Manifest) -> None:
        """Say what is not as it was when the checkpoint was written, where bits may hang on it."""
        if self._world.is_first and (difference := first_difference(manifest.fingerprint, self._fingerprint)):
            reason = f"{manifest.name} goes on where bits may come out different: {difference}"
            self._run.event("alarm", what="bits may differ", reason=reason)

    def roll_back(self, at_most: int) -> JsonObject | None:
        """As :meth:`load_latest` from the newest of so many steps; what is newer is set aside, a save under way too.

        None when there is none to go back to; then nothing was changed.
        """
        self.forget()
        progress = self.load_latest(at_most=at_most)
        if progress is not None and self._world.is_first:
            set_newer_aside(self._storage, int(progress["step"]))
        return progress

    def load_weights(self, other: RunDir) -> Manifest:
        """Fill the weights alone from the newest valid checkpoint of another run, which stays as it is.

        Raises:
            UsageError: it has none, or its weights have other names, types or shapes.
        """
        storage = storage_of(other)
        weights = {name: tensor for name, tensor in self.state.items() if name.startswith(WEIGHT)}
        unfit: set[str] = set()
        while True:
            manifest = agree(lambda: newest_of_another(storage, other, unfit), self._group, self._rank)
            assert manifest is not None
            try:
                load(storage, manifest, weights, self._group, self._rank)
                return manifest
            except IntegrityError:
                unfit.add(manifest.name)

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
                self._saver.abandon()
                wait([self._pending], LEAVE_SECONDS)
        wait([self._pinned])
        self._thread.close()
        self._saver.close()
        self._parts.clear()
        self._memory.close()


class _Thread:
    """Does one thing after another and keeps no process from ending, as an executor's thread would.

    The same for all saves: a writing process that it starts dies with the very thread that started it.
    """

    def __init__(self) -> None:
        self._due: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        threading.Thread(target=self._run, name="checkpoint", daemon=True).start()

    def submit(self, act: Callable[[], Result]) -> "Future[Result]":
        future: Future[Result] = Future()

        def do() -> None:
            try:
                future.set_result(act())
            except BaseException as error:
                future.set_exception(error)

        self._due.put(do)
        return future

    def close(self) -> None:
        """Let it end when it has nothing more to do. Does not wait."""
        self._due.put(None)

    def _run(self) -> None:
        while (do := self._due.get()) is not None:
            do()


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
