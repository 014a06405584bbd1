"""Sharded weights that all are trained: gathered once a step, and their gradients reduced once, however many packs.

Between the packs of a step the weights do not change, so where memory allows every rank keeps them whole, with the
sum of its own gradients in float32, and a step moves each weight and each gradient over the links once (ZeRO stage 1
in traffic, arXiv 1910.02054). Float8 copies are then made once a step too. Where memory does not allow it
(seatrial.dist.plan decides) FSDP gathers and reduces for every pack, and layers quantise on the way.
"""

from collections.abc import Sequence

from torch import nn
from torch.distributed.fsdp import FSDPModule, UnshardHandle

from seatrial.model.full import quantise_weights
from seatrial.model.packed import PackLoss, decoder_blocks


def keep_gathered(packed: PackLoss) -> None:
    """From now on weights stay gathered from :func:`take_weights` until the last backward pass of the step."""
    if isinstance(packed, FSDPModule):
        packed.set_reshard_after_forward(False)


def take_weights(packed: PackLoss) -> None:
    """At the start of a step: gather what is sharded, block by block, and quantise what is multiplied in float8.

    Collective. The next block travels while this one is quantised. FSDP must have run a forward pass before.
    """
    blocks: Sequence[nn.Module] = decoder_blocks(packed.model)
    waiting = [_asked_for(blocks[0])]
    for index, block in enumerate(blocks):
        if index + 1 < len(blocks):
            waiting.append(_asked_for(blocks[index + 1]))
        if (handle := waiting[index]) is not None:
            handle.wait()
        quantise_weights(block)


def before_backward(packed: PackLoss, *, last: bool) -> None:
    """Announce a pack: only the last of a step reduces gradients and gives the gathered weights back."""
    if isinstance(packed, FSDPModule):
        packed.set_requires_gradient_sync(last)
        packed.set_reshard_after_backward(last)


def _asked_for(block: nn.Module) -> UnshardHandle | None:
    return block.unshard(async_op=True) if isinstance(block, FSDPModule) else None
