"""A run's beginning and end: whose directory it is, which attempt this is, how it ended, and what it leaves behind."""

import os
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from typing import Literal

import torch.distributed as dist
from torch import Tensor
from transformers import PreTrainedModel

from seatrial.acceptance import read_acceptance
from seatrial.dist.checkpoint.manifest import first_difference
from seatrial.dist.parallel import whole
from seatrial.dist.plan import Choice
from seatrial.dist.world import World
from seatrial.errors import ImpossibleConfiguration, Preempted, SeatrialError, UsageError
from seatrial.model.adapter import save_adapter
from seatrial.model.full import weights_by_layer
from seatrial.model.load import DTYPES, copy_tokenizer
from seatrial.model.lora import adapters_by_layer
from seatrial.provenance import provenance
from seatrial.records import write_json
from seatrial.rundir import RunDir
from seatrial.settings import TrainSettings
from seatrial.train.attempts import GAVE_UP, UNHEARD, ended_unheard, refuse_standstill
from seatrial.train.exact import Exactness
from seatrial.train.layout import as_event
from seatrial.train.origin import begin_again
from seatrial.train.packs import RankPacks
from seatrial.train.saving import settings_that_matter
from seatrial.train.step import Training

NO_TIME = "run.grace_seconds leaves too little time for it"
"""Why the save of a run that was asked to stop was not begun."""


@contextmanager
def open_run(run: RunDir, settings: TrainSettings, world: World, *, fresh: bool = False) -> Iterator[int]:
    """Take the run directory, yield the number of this attempt (from 1), and write down how it ended.

    All ranks must enter. Rank 0 judges the directory; when it refuses, every rank raises the same error. ``fresh``: a
    run that is there is moved aside first.

    Raises:
        UsageError: the directory is in use, or belongs to a run with other settings; names the first difference.
        ImpossibleConfiguration: attempt after attempt failed without getting further.
    """
    pids: list[int] = [0] * world.size
    dist.all_gather_object(pids, os.getpid())
    with ExitStack() as held:
        opened: list[int | SeatrialError] = [0]
        if world.is_first:
            try:
                if fresh:
                    begin_again(run, settings.checkpoint)
                before = held.enter_context(run.locked())
                opened = [_open(run, settings, world, pids)]
                if before is not None and before.host != platform.node():
                    run.event("alarm", what="lock taken over", reason=f"{before.name} held it and is dead")
            except SeatrialError as error:
                opened = [error]
        dist.broadcast_object_list(opened, src=0)
        attempt = opened[0]
        if isinstance(attempt, SeatrialError):
            raise attempt
        try:
            yield attempt
        except BaseException as error:
            if world.is_first:
                code = error.exit_code if isinstance(error, SeatrialError) else SeatrialError.exit_code
                status: Literal["preempted", "failed"] = "preempted" if isinstance(error, Preempted) else "failed"
                run.event(status, reason=str(error) or type(error).__name__, exit_code=code, attempt=attempt)
                run.write_outcome(status, str(error) or type(error).__name__, code)
            raise
        if world.is_first:
            run.event("done", attempt=attempt)
            run.write_outcome("done", "all steps are done", 0)


def _open(run: RunDir, settings: TrainSettings, world: World, pids: Sequence[int]) -> int:
    wanted = settings.model_dump(mode="json")
    if run.settings.is_file() and run.read_metrics():  # one that never took a step may be mended
        before, now = settings_that_matter(run.read_settings()), settings_that_matter(wanted)
        if difference := first_difference(before, now):
            raise UsageError(
                f"{run.path} belongs to a run with other settings: {difference}; choose another run.dir, begin again "
                f"here with --fresh, or start there from its weights with --fork {run.path}"
            )
    elif not run.settings.is_file() and (others := [path.name for path in run.path.iterdir() if path.name != ".lock"]):
        raise UsageError(f"{run.path} is not empty and holds no run ({others[0]}); choose another run.dir")
    if settings.run.acceptance is not None:
        read_acceptance(settings.run.acceptance)  # refused now, not when the model is loaded
    run.prepare()
    if (unheard := ended_unheard(run.read_events())) is not None:
        reason = f"attempt {unheard} ended without a word: its processes and what watched them died at once"
        run.event("fault", what=UNHEARD, reason=reason, attempt=unheard, ranks=[])
    _refuse_standstill(run, settings)
    run.stop_file.unlink(missing_ok=True)
    run.outcome.unlink(missing_ok=True)
    write_json(run.settings, wanted)
    write_json(run.provenance, provenance())
    attempt = 1 + [event["event"] for event in run.read_events()].count("start")
    run.event("start", attempt=attempt, world_size=world.size, device=str(world.device.type), pids=list(pids))
    return attempt


def _refuse_standstill(run: RunDir, settings: TrainSettings) -> None:
    try:
        refuse_standstill(run.read_events(), settings.run.max_attempts_without_progress)
    except ImpossibleConfiguration as error:
        run.event("failed", what=GAVE_UP, reason=str(error))
        run.write_outcome("failed", str(error), error.exit_code)
        raise


def tell_beginning(
    run: RunDir, training: Training, packs: RankPacks, choice: Choice, exactness: Exactness, *, step: int, attempt: int
) -> None:
    """What is about to be trained, how, and from which step: the first rank says it."""
    if not training.world.is_first:
        return
    run.event("layout", **as_event(choice))
    run.event("loaded", **asdict(training.filled))
    run.event("exact", promise=exactness.promise, why=exactness.why)
    run.event("data", **packs.as_event())
    if step:
        run.event("resume", step=step, attempt=attempt)


def end_with(failure: str, done: int, steps: int, why_stopped: str) -> None:
    """After the last save of this attempt, which ``failure`` kept from being committed; empty: nothing did.

    Raises:
        Preempted: stopped before the last step, or its save was not begun.
        SeatrialError: all steps are done and the work of the last ones is not safe.
    """
    if done < steps or failure == NO_TIME:
        saved = f"could not save step {done} of {steps}: {failure}" if failure else f"saved step {done} of {steps}"
        raise Preempted(f"{saved} ({why_stopped})")
    if failure:
        raise SeatrialError(f"the last checkpoint, of step {done}, was not saved: {failure}")


def write_result(
    run: RunDir, settings: TrainSettings, model: PreTrainedModel, trainable: Mapping[str, Tensor], world: World
) -> None:
    """The adapter, or the whole model with tokenizer and template, under the run directory; whole or not at all.

    Collective when parameters are sharded. The first rank writes.
    """
    trained: dict[str, Tensor] = {}
    for name, parameter in trainable.items():
        tensor = whole(parameter)
        if world.is_first:
            trained[name] = tensor.detach().cpu()
    if not world.is_first:
        return
    final = run.adapter if settings.lora is not None else run.model
    temporary = final.with_suffix(".tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    if settings.lora is not None:
        save_adapter(temporary, adapters_by_layer(model, trained), settings.lora, settings.model.path)
    else:
        dtype = DTYPES[settings.model.dtype]
        rounded = {name: tensor.to("cpu", dtype) for name, tensor in weights_by_layer(model, trained).items()}
        model.save_pretrained(temporary, state_dict=rounded)
        model.config.dtype = dtype  # what is saved, not what was trained
        model.config.save_pretrained(temporary)
        copy_tokenizer(settings, temporary)
    shutil.rmtree(final, ignore_errors=True)
    temporary.rename(final)
