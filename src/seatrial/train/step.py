"""One optimizer step, queued on the device without waiting for it, and what it said of itself, read a step later.

Between the first product and the update the host asks the device nothing: the loss, the gradient's norm and what the
ranks agreed on travel through pinned memory while the next step is being queued. Whether a step may touch the weights
is therefore decided on the device.
"""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from transformers import PreTrainedModel

from seatrial.data.pack import Pack
from seatrial.dist.checkpoint.stage import Copied
from seatrial.dist.fixed_point import FixedPointSum
from seatrial.dist.gathered import before_backward, take_weights
from seatrial.dist.heartbeat import Heartbeat
from seatrial.dist.parallel import GradientSum, clip_gradients
from seatrial.dist.world import World
from seatrial.model.dropout import DropoutMasks
from seatrial.model.packed import PackInput, PackLoss, pack_input
from seatrial.model.stream import Filled

LOSS_SCALE = 2.0**32
"""Losses are summed in whole multiples of 2^-32, which float64 adds without rounding: in any order, the same."""


@dataclass(frozen=True, eq=False)
class Training:
    """What a step works on.

    ``gathered``: sharded weights stay gathered for all packs of a step (:mod:`seatrial.dist.gathered`). ``unsound`` is
    a 0-d float32 on the device, 0 until a loss or a norm was not finite, then 1 until the host has dealt with it
    (:mod:`seatrial.train.recover`). Fused AdamW looks at it (``found_inf``) and leaves weights and moments alone, so
    that they stay those that the bad step began with, whatever is queued behind it.
    ``filled``: what it took to give the model its weights.
    """

    model: PreTrainedModel
    packed: PackLoss
    trainable: Mapping[str, nn.Parameter]
    optimizer: torch.optim.Optimizer
    gradient_sum: GradientSum | FixedPointSum
    filled: Filled
    gathered: bool
    masks: DropoutMasks | None
    unsound: Tensor
    world: World
    compute: str
    max_grad_norm: float


@dataclass(frozen=True)
class StepReport:
    """What all ranks know of a step once its device work has ended.

    ``hurried``: some rank will be killed before a save could be complete. ``save_due`` and ``saving``: some rank asked
    for a checkpoint, or still had one under way. ``rank_seconds``: of each rank, the time of its own forward and
    backward passes in the step before, 0 when there was none. ``seconds`` and ``data_seconds`` (laying out packs on the
    host, hidden unless it nears ``seconds``) are this rank's.
    """

    step: int
    loss: float
    grad_norm: float
    stopping: bool
    hurried: bool
    save_due: bool
    saving: bool
    seconds: float
    own_seconds: float
    data_seconds: float
    rank_seconds: tuple[float, ...]


@dataclass(frozen=True, eq=False)
class QueuedStep:
    """A step on its way. ``told``: loss, norm, stop flags, then a number for each rank, in host memory."""

    step: int
    told: Tensor
    marks: "tuple[_Mark, _Mark, _Mark]"
    data_seconds: float

    def read(self) -> StepReport:
        """Wait for the end of the step."""
        began, computed, ended = self.marks
        ended.wait()
        loss, grad_norm, stops, hurried, saves_due, saving, *rank_seconds = self.told.tolist()
        return StepReport(
            step=self.step,
            loss=loss,
            grad_norm=grad_norm,
            stopping=stops > 0,
            hurried=hurried > 0,
            save_due=saves_due > 0,
            saving=saving > 0,
            seconds=began.seconds_to(ended),
            own_seconds=began.seconds_to(computed),
            data_seconds=self.data_seconds,
            rank_seconds=tuple(rank_seconds),
        )


def queue_step(
    training: Training,
    step: int,
    inputs: Iterator[PackInput],
    positions: Sequence[int],
    *,
    trained_tokens: int,
    learning_rate: float,
    stop: bool,
    hurried: bool,
    own_seconds: float,
    heartbeat: Heartbeat,
    save_due: bool = False,
    saving: bool = False,
    copied: Copied | None = None,
) -> QueuedStep:
    """Forward, backward, reduction, clipping and update. Collective: all ranks call it with as many packs.

    Args:
        inputs: this rank's packs of this step are taken from it, one for each of ``positions``.
        positions: where those packs stand in the global stream.
        trained_tokens: of the whole step, on all ranks.
        stop: whether this rank was asked to stop.
        hurried: whether it will be killed before a save could be complete.
        own_seconds: what this rank tells the others, from the last step it has read.
        heartbeat: marked at each pack, and when nothing is left but to wait for the others.
        save_due: whether this rank's clock asks for a checkpoint.
        saving: whether this rank still has one under way.
        copied: a copy of weights and moments, which the update waits for.
    """
    world = training.world
    began = _Mark(world.device)
    data_seconds = 0.0
    loss_sum = torch.zeros((), dtype=torch.float64, device=world.device)
    if training.gathered:
        take_weights(training.packed)
    for index, position in enumerate(positions):
        asked = time.monotonic()
        pack = next(inputs)
        data_seconds += time.monotonic() - asked
        heartbeat.mark()
        if training.masks is not None:
            training.masks.draw(position)
        loss = pack_loss(training.packed, pack, training.compute) / max(1, trained_tokens)
        last = index + 1 == len(positions)
        training.gradient_sum.before_backward(last=last)
        if training.gathered:
            before_backward(training.packed, last=last)
        loss.backward()
        loss_sum += (loss.detach().double() * LOSS_SCALE).round()
    computed = _Mark(world.device)
    heartbeat.mark()
    refused = training.gradient_sum.wait()
    grad_norm = clip_gradients(list(training.trainable.values()), training.max_grad_norm)

    # Collective: what all ranks must agree on. A request to stop may reach only one of them.
    flags = [float(stop), float(hurried), float(save_due), float(saving)]
    told = [*flags, *(own_seconds if rank == world.rank else 0.0 for rank in range(world.size))]
    agreed = torch.cat([torch.stack([loss_sum, refused]), _to_device(told, world.device)])
    dist.all_reduce(agreed)
    loss, grad_norm = agreed[0] / LOSS_SCALE, torch.where(agreed[1] > 0, torch.nan, grad_norm.double())
    training.unsound.copy_(torch.maximum(training.unsound, _not_finite(loss, grad_norm)))
    for group in training.optimizer.param_groups:
        group["lr"] = learning_rate
    if copied is not None:
        copied.hold()
    _update(training)
    training.optimizer.zero_grad(set_to_none=True)
    answer = torch.cat([torch.stack([loss, grad_norm]), agreed[2:]])
    if world.device.type == "cuda":
        answer = torch.empty_like(answer, device="cpu", pin_memory=True).copy_(answer, non_blocking=True)
    return QueuedStep(step, answer, (began, computed, _Mark(world.device)), data_seconds)


def pack_loss(packed: PackLoss, pack: PackInput, compute: str) -> Tensor:
    """Summed cross-entropy of one pack, float32, a scalar. The head runs at the trained positions only."""
    with torch.autocast(pack.ids_T.device.type, torch.bfloat16, enabled=compute == "bfloat16"):
        loss: Tensor = packed(pack)
    return loss


def on_device(packs: Iterable[Pack], device: torch.device) -> Iterator[PackInput]:
    """The packs on ``device``, copied one ahead: while a pack is computed on, the next one travels."""
    if device.type != "cuda":
        yield from (pack_input(pack, device) for pack in packs)
        return
    copying = torch.cuda.Stream(device)
    ahead: tuple[PackInput, torch.cuda.Event] | None = None
    for pack in packs:
        with torch.cuda.stream(copying):
            arriving, there = pack_input(pack, device), torch.cuda.Event()
            there.record()
        if ahead is not None:
            yield _arrived(*ahead)
        ahead = (arriving, there)
    if ahead is not None:
        yield _arrived(*ahead)


def _arrived(pack: PackInput, there: torch.cuda.Event) -> PackInput:
    stream = torch.cuda.current_stream()
    stream.wait_event(there)
    for tensor in (pack.ids_T, pack.positions_T, pack.cu_seqlens, pack.trained_at_S, pack.targets_S):
        tensor.record_stream(stream)  # its memory belongs to the copying stream
    return pack


def _not_finite(loss: Tensor, grad_norm: Tensor) -> Tensor:
    return (~(torch.isfinite(loss) & torch.isfinite(grad_norm))).float()


def _update(training: Training) -> None:
    if getattr(training.optimizer, "_step_supports_amp_scaling", False):
        training.optimizer.found_inf = training.unsound  # type: ignore[attr-defined]
        training.optimizer.step()
    elif not bool(training.unsound):  # this optimizer takes no flag, so the host waits for it
        training.optimizer.step()


def _to_device(numbers: Sequence[float], device: torch.device) -> Tensor:
    """Without a wait, which a copy from memory that is not pinned would be."""
    on_host = torch.tensor(numbers, dtype=torch.float64, pin_memory=device.type == "cuda")
    return on_host.to(device, non_blocking=True)


class _Mark:
    """A moment of the device's work, as the device comes to it; on a CPU, of the host's."""

    def __init__(self, device: torch.device) -> None:
        self._event = torch.cuda.Event(enable_timing=True) if device.type == "cuda" else None
        if self._event is not None:
            self._event.record()
        self._time = time.monotonic()

    def wait(self) -> None:
        if self._event is not None:
            self._event.synchronize()

    def seconds_to(self, later: "_Mark") -> float:
        if self._event is None or later._event is None:
            return later._time - self._time
        return float(self._event.elapsed_time(later._event)) / 1e3
