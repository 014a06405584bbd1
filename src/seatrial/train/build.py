"""From settings to a model that steps can be taken with."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from seatrial.data.dataset import TokenRows
from seatrial.data.pack import pack_tensors
from seatrial.data.render import Rendered
from seatrial.dist.fixed_point import FixedPointSum
from seatrial.dist.gathered import keep_gathered
from seatrial.dist.parallel import GradientSum, process_mesh, shard
from seatrial.dist.plan import Layout
from seatrial.dist.world import World
from seatrial.errors import SeatrialError, UsageError
from seatrial.model.attention import prepare_attention
from seatrial.model.compiled import keep_compiled_code
from seatrial.model.dropout import DropoutMasks
from seatrial.model.full import MULTIPLE, SCALING, Scaling, group_layers
from seatrial.model.load import empty_for_training, fill_for_training
from seatrial.model.lora import apply_lora, quantise_base
from seatrial.model.mlp import fuse_mlps
from seatrial.model.packed import PackLoss, checkpoint_activations, compile_blocks, pack_input
from seatrial.settings import TrainSettings
from seatrial.train.optimizer import build_optimizer
from seatrial.train.packs import RankPacks
from seatrial.train.step import Training, pack_loss

# Relative. The same rows at other places of a pack are rounded differently; a leak changes the loss by far more.
PACKING_TOLERANCE = {"float32": 1e-4, "bfloat16": 2e-2}


def build_training(settings: TrainSettings, layout: Layout, world: World, *, order_free: bool) -> Training:
    """The model's structure, adapted, laid over the processes, then filled, in this order; and its optimizer.

    Collective. Not compiled yet, and nothing is dropped: see :func:`make_fast`.

    Args:
        order_free: sum gradients in fixed point; every process then holds what is trained whole.
    """
    keep_compiled_code()
    full = settings.lora is None
    scaling = _float8_scaling(settings)
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
            quantise_base(
                model,
                kind=settings.model.base,
                transposed=layout.plan == "replicate",
                fp8_products=settings.model.products == "fp8",
            )
        model.enable_input_require_grads()  # all blocks then look alike, and are compiled once
    else:
        group_layers(model, fp8=scaling)
    packed = PackLoss(model)
    if layout.plan != "replicate":
        mesh = process_mesh(world.size, layout.shard_size, world.device.type)
        narrow = torch.bfloat16 if full and settings.model.compute == "bfloat16" else None
        unsharded = [p for p in model.parameters() if p.requires_grad] if order_free else []
        shard(packed, mesh, whole_blocks=layout.whole_blocks, compute=narrow, unsharded=unsharded)
    filled = fill_for_training(model, settings.model, device=world.device, seed=settings.run.seed)
    if settings.lora is not None and settings.model.base == "fp8":
        packed.head.multiply_gradient_in_fp8()
    trainable = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    optimizer = build_optimizer(trainable, settings.optimizer)
    parameters = list(trainable.values())
    if layout.gathered:
        keep_gathered(packed)
    return Training(
        model=model,
        packed=packed,
        trainable=trainable,
        optimizer=optimizer,
        gradient_sum=FixedPointSum(parameters, packs_per_step=settings.optimizer.packs_per_step)
        if order_free
        else GradientSum(packed, parameters),
        filled=filled,
        gathered=layout.gathered,
        masks=None,
        unsound=torch.zeros((), device=world.device),
        world=world,
        compute=settings.model.compute,
        max_grad_norm=settings.optimizer.max_grad_norm,
    )


def make_fast(training: Training, settings: TrainSettings, layout: Layout) -> Training:
    """Compile the blocks and choose what is computed again; from now on adapters drop, where they shall."""
    drops = settings.lora is not None and settings.lora.dropout > 0
    device = training.world.device
    masks = DropoutMasks(training.model, seed=settings.run.seed, device=device) if drops else None
    if device.type == "cuda" and settings.lora is not None and not drops:
        fuse_mlps(training.model, keep=layout.checkpointing != "selective")
    if _compiles(settings, training.world):
        compile_blocks(training.model)
    checkpoint_activations(training.model, layout.checkpointing)
    return replace(training, masks=masks)


def prepare_kernels(training: Training, settings: TrainSettings, packs: RankPacks) -> None:
    """Have attention compiled and planned for every kind of pack there will be, so that no step waits for it."""
    if settings.model.compute != "bfloat16":
        return  # those kernels are for this type
    config = training.model.config
    heads = config.num_attention_heads
    prepare_attention(
        packs.attention_bounds(),
        tokens=settings.data.length,
        heads=heads,
        key_heads=config.num_key_value_heads or heads,
        width=getattr(config, "head_dim", None) or config.hidden_size // heads,
        device=training.world.device,
    )


def refuse_leaking_attention(training: Training, settings: TrainSettings, data: TokenRows, pad_id: int) -> None:
    """Compare the loss of a few short rows packed together with that of each alone, on this very attention kernel.

    Collective when the model is sharded: every rank runs the same rows.

    Raises:
        SeatrialError: they differ by more than rounding, so rows in a pack see each other.
    """
    length = settings.data.length

    def loss_of(rows: Sequence[Rendered]) -> Tensor:
        pack = pack_tensors(rows, length, pad_id)
        return pack_loss(training.packed, pack_input(pack, training.world.device), training.compute)

    shortest = sorted(data.rows, key=lambda row: len(row.ids))[:3]
    together = shortest if sum(len(row.ids) for row in shortest) <= length else shortest[:1]
    with torch.no_grad():
        packed = loss_of(together)
        alone = [loss_of([row]) for row in together]
    expected = float(torch.stack(alone).sum())
    tolerance = PACKING_TOLERANCE[training.compute if _float8_scaling(settings) is None else "bfloat16"]
    if abs(float(packed) - expected) > tolerance * max(1.0, expected):
        raise SeatrialError(
            f"packing changes the loss: {float(packed):.6g} packed, {expected:.6g} one by one; attention on "
            f"{packed.device} lets the rows of a pack see each other"
        )


def _float8_scaling(settings: TrainSettings) -> Scaling | None:
    """How products of trained weights are scaled in float8. None: they run in model.compute, or adapters are trained.

    Raises:
        UsageError: a base in 4 bits, which cannot be trained, or packs that float8 units do not multiply, or products
            in float8 of a base that they are not for.
    """
    if settings.model.products == "fp8" and settings.model.base != "nf4":
        raise UsageError(
            f"model.products: fp8 is for model.base nf4, and this one is {settings.model.base}; leave it out"
        )
    if settings.lora is not None or settings.model.base == "plain":
        return None
    if settings.model.base != "fp8":
        raise UsageError(f"model.base: {settings.model.base} is for weights frozen under lora; train in plain or fp8")
    if settings.data.length % MULTIPLE:
        raise UsageError(f"data.length: {settings.data.length} with model.base fp8; choose a multiple of {MULTIPLE}")
    return SCALING


def _compiles(settings: TrainSettings, world: World) -> bool:
    """Whether the decoder blocks are compiled."""
    if settings.model.compile == "auto":
        return world.device.type == "cuda"
    return settings.model.compile == "on"
