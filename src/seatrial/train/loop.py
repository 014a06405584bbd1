"""Training, from settings to a model, in one function that can be read top to bottom.

Shapes: B = 1, T tokens of a pack, S trained positions among them.
"""

import os
import time
from collections.abc import Callable
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from seatrial.data.dataset import TokenRows, load_rows
from seatrial.data.pack import Pack, PackStream, pack_tensors, share
from seatrial.data.render import TrainOn, load_renderer
from seatrial.dist.checkpoint import Checkpoints
from seatrial.dist.gathered import before_backward, fits_gathered, keep_gathered, take_weights
from seatrial.dist.parallel import GradientSum, clip_gradients, process_mesh, shard, whole
from seatrial.dist.stop import stop_requests
from seatrial.dist.world import World, joined_world
from seatrial.errors import Preempted, SeatrialError, UsageError
from seatrial.model.dropout import DropoutMasks
from seatrial.model.load import empty_for_training, fill_for_training, model_directory
from seatrial.model.full import MULTIPLE, Scaling, group_layers
from seatrial.model.lora import apply_lora, quantise_base
from seatrial.model.packed import PackLoss, checkpoint_activations, compile_blocks, pack_input
from seatrial.rundir import RunDir
from seatrial.settings import TrainSettings
from seatrial.train.layout import as_event, choose_layout, smallest_memory
from seatrial.train.lifecycle import open_run, refuse_non_finite, refuse_other_data, write_result
from seatrial.train.meter import Meter, StepRecord
from seatrial.train.optimizer import build_optimizer, learning_rate, training_state

# Relative. The same rows at other places of a pack are rounded differently; a leak changes the loss by far more.
PACKING_TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-2}


def train(settings: TrainSettings) -> None:
    """Train to the end, resuming from the newest valid checkpoint. All ranks run this.

    Leaves an adapter (or a whole model) in the run directory.

    Raises:
        Preempted: asked to stop; a checkpoint of this very step is committed.
        UsageError: the settings, the data or the run directory do not allow a training.
        SeatrialError: a loss or a gradient is not finite.
    """
    if settings.run.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts
        torch.use_deterministic_algorithms(True)
    run = RunDir(settings.run.dir)
    with joined_world(timeout_seconds=settings.run.timeout_seconds) as world, stop_requests(run.stop_file) as stop:
        # Data: the same rows, in the same order, on every rank.
        renderer = load_renderer(model_directory(settings.model.path), settings.data.template)
        data = load_rows(
            settings.data.train,
            renderer,
            train_on=TrainOn(settings.data.train_on),
            length=settings.data.length,
            over_long=settings.data.over_long,
        )
        lengths_N, trained_N = data.lengths_N, data.trained_N
        stream = PackStream(
            lengths_N,
            settings.data.length,
            settings.run.seed,
            settings.optimizer.packs_per_step,
            settings.optimizer.epochs,
        )
        steps = settings.optimizer.steps or stream.steps
        assert steps is not None, "settings hold steps or epochs"
        fingerprint = data.fingerprint(length=settings.data.length, seed=settings.run.seed)

        choice = choose_layout(settings, world)
        layout = choice.layout

        # Model: its structure, then adapted, then laid over the processes, then filled; in this order.
        full = settings.lora is None
        scaling = float8_scaling(settings)
        # What is trained is float32 whatever it is computed in; a whole model is rounded to model.dtype at the end.
        model = empty_for_training(settings.model.model_copy(update={"dtype": "float32"}) if full else settings.model)
        if settings.lora is not None:
            apply_lora(
                model,
                targets=settings.lora.targets,
                rank=settings.lora.rank,
                alpha=settings.lora.alpha,
                seed=settings.run.seed,
                dropout=settings.lora.dropout,
            )
            if settings.model.base != "plain":
                quantise_base(model, kind=settings.model.base, transposed=layout.plan == "replicate")
            model.enable_input_require_grads()  # all blocks then look alike, and are compiled once
        else:
            group_layers(model, fp8=scaling)
        packed = PackLoss(model)
        if layout.plan != "replicate":
            mesh = process_mesh(world.size, layout.shard_size, world.device.type)
            narrow = torch.bfloat16 if full and settings.model.compute == "bfloat16" else None
            shard(packed, mesh, reshard_after_forward=layout.reshard_after_forward, compute=narrow)
        fill_for_training(model, settings.model, device=world.device, seed=settings.run.seed)
        trainable = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        parameters = list(trainable.values())
        optimizer = build_optimizer(trainable, settings.optimizer)
        state = training_state(trainable, optimizer)
        gradient_sum = GradientSum(packed, parameters)

        # Where we left off.
        with open_run(run, settings, world) as attempt:
            checkpoints = Checkpoints(run, world, keep=settings.checkpoint.keep)
            progress = checkpoints.load_latest(state)
            first = 0
            if progress is not None:
                refuse_other_data(progress, fingerprint, run)
                first = int(progress["step"])
            if world.is_first:
                run.event("layout", **as_event(choice))
                run.event("data", rows=len(data.rows), left_out=data.left_out, packs_per_epoch=stream.packs_per_epoch)
                if first:
                    run.event("resume", step=first, attempt=attempt)

            meter = Meter(run, steps)
            gathered = full and fits_gathered(sum(p.numel() for p in parameters), smallest_memory(world))
            if gathered:
                keep_gathered(packed)
            loss_of_pack = partial(pack_loss, packed, device=world.device, compute=settings.model.compute)
            precision = settings.model.compute if scaling is None else "bfloat16"
            refuse_leaking_attention(loss_of_pack, data, settings.data.length, renderer.pad_id, precision)
            drops = settings.lora is not None and settings.lora.dropout > 0
            masks = DropoutMasks(model, seed=settings.run.seed, device=world.device) if drops else None
            if compiles(settings, world):
                compile_blocks(model)
            checkpoint_activations(model, layout.checkpointing)

            for step in range(first, steps):
                began = time.monotonic()
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate(step, steps, settings.optimizer)

                # The step's packs and their trained tokens are known to every rank from the plan: no communication.
                packs = stream.step_packs(step)
                trained_tokens = sum(int(trained_N[list(rows)].sum()) for rows in packs)
                loss_sum = torch.zeros((), device=world.device)
                mine = share(packs, world.rank, world.size)
                if gathered:
                    take_weights(packed)
                for index, rows in enumerate(mine):
                    if masks is not None:
                        masks.draw(step * len(packs) + world.rank + index * world.size)
                    pack = pack_tensors([data.rows[row] for row in rows], settings.data.length, renderer.pad_id)
                    loss = loss_of_pack(pack) / max(1, trained_tokens)
                    last = index + 1 == len(mine)
                    gradient_sum.before_backward(last=last)
                    if gathered:
                        before_backward(packed, last=last)
                    loss.backward()
                    loss_sum += loss.detach()
                gradient_sum.wait()
                grad_norm = clip_gradients(parameters, settings.optimizer.max_grad_norm)

                # Collective: what all ranks must agree on before the update. A request to stop may reach only one.
                agreed = torch.stack([loss_sum, torch.tensor(float(bool(stop.reason)), device=world.device)])
                dist.all_reduce(agreed)
                loss_value, stopping, norm_value = *agreed.tolist(), float(grad_norm)
                refuse_non_finite(step, loss_value, norm_value, packs)
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

                done = step + 1
                if world.is_first:
                    seconds = time.monotonic() - began
                    tokens = sum(int(lengths_N[list(rows)].sum()) for rows in packs)
                    record = StepRecord(
                        step=done,
                        attempt=attempt,
                        epoch=done * settings.optimizer.packs_per_step / stream.packs_per_epoch,
                        loss=loss_value,
                        learning_rate=optimizer.param_groups[0]["lr"],
                        grad_norm=norm_value,
                        trained_tokens=trained_tokens,
                        tokens=tokens,
                        packs=list(range(step * len(packs), done * len(packs))),
                        seconds=seconds,
                        tokens_per_s=tokens / seconds,
                    )
                    meter.write(record)
                if stopping or done % settings.checkpoint.every_steps == 0 or done == steps:
                    checkpoints.save(done, state, {"step": done, "data_fingerprint": fingerprint})
                if stopping and done < steps:
                    checkpoints.close()
                    raise Preempted(f"saved step {done} of {steps} ({stop.reason or 'asked on another rank'})")

            checkpoints.close()
            final: dict[str, Tensor] = {}
            for name, parameter in trainable.items():
                tensor = whole(parameter)  # collective when sharded
                if world.is_first:
                    final[name] = tensor.cpu()
            if world.is_first:
                write_result(run, settings, model, final)


def float8_scaling(settings: TrainSettings) -> Scaling | None:
    """How products of trained weights are scaled in float8; None: they run in model.compute, or nothing but adapters is.

    Raises:
        UsageError: a base in 4 bits, which cannot be trained, or packs that float8 units do not multiply.
    """
    if settings.lora is not None or settings.model.base == "plain":
        return None
    if settings.model.base != "fp8":
        raise UsageError(f"model.base: {settings.model.base} is for weights frozen under lora; train in plain or fp8")
    if settings.data.length % MULTIPLE:
        raise UsageError(f"data.length: {settings.data.length} with model.base fp8; choose a multiple of {MULTIPLE}")
    return "tensor"


def compiles(settings: TrainSettings, world: World) -> bool:
    """Whether the decoder blocks are compiled."""
    if settings.model.compile == "auto":
        return world.device.type == "cuda" and not settings.run.deterministic
    return settings.model.compile == "on"


def refuse_leaking_attention(
    loss_of_pack: Callable[[Pack], Tensor], data: TokenRows, length: int, pad_id: int, compute: str
) -> None:
    """Compare the loss of a few short rows packed together with that of each alone, on this very attention kernel.

    Collective when the model is sharded: every rank runs the same rows.

    Raises:
        SeatrialError: they differ by more than rounding, so rows in a pack see each other.
    """
    shortest = sorted(data.rows, key=lambda row: len(row.ids))[:3]
    together = shortest if sum(len(row.ids) for row in shortest) <= length else shortest[:1]
    with torch.no_grad():
        packed = loss_of_pack(pack_tensors(together, length, pad_id))
        alone = [loss_of_pack(pack_tensors([row], length, pad_id)) for row in together]
    expected = float(torch.stack(alone).sum())
    tolerance = PACKING_TOLERANCE[compute]
    if abs(float(packed) - expected) > tolerance * max(1.0, expected):
        raise SeatrialError(
            f"packing changes the loss: {float(packed):.6g} packed, {expected:.6g} one by one; attention on "
            f"{packed.device} lets the rows of a pack see each other"
        )


def pack_loss(packed: PackLoss, pack: Pack, *, device: torch.device, compute: str) -> Tensor:
    """Summed cross-entropy of one pack, float32, a scalar. The head runs at the trained positions only."""
    with torch.autocast(device.type, torch.bfloat16, enabled=compute == "bfloat16"):
        loss: Tensor = packed(pack_input(pack, device))
    return loss
