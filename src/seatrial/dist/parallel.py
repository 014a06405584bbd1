"""How the model lies over the processes: plain functions, applied in a fixed order, that take values."""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor

from seatrial.model.packed import PackLoss, decoder_blocks


def shard(packed: PackLoss, *, world_size: int, device_type: str) -> None:
    """Shard every parameter over all processes (FSDP2), one group per decoder block and one for the rest.

    FSDP averages gradients over ranks by default. Our loss is already divided by the *global* number of trained
    tokens, so they must be summed: hence the divide factor of 1.
    """
    mesh = init_device_mesh(device_type, (world_size,))
    for block in decoder_blocks(packed.model):
        fully_shard(block, mesh=mesh)
    fully_shard(packed, mesh=mesh)
    for module in packed.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo knows no scaled sum


def all_reduce_gradients(parameters: Sequence[nn.Parameter]) -> None:
    """Sum the gradients over all ranks, in one buffer. A parameter no local pack reached counts as zero.

    Collective: all ranks must call it with the same parameters.
    """
    for parameter in parameters:
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    for gradient, summed in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        gradient.copy_(summed.view_as(gradient))


def clip_gradients(parameters: Sequence[nn.Parameter], max_norm: float) -> Tensor:
    """Scale the gradients down to a global 2-norm of at most ``max_norm``; returns the norm before, a scalar.

    Collective when the parameters are sharded.
    """
    norm = nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
    if isinstance(norm, DTensor):
        norm = norm.full_tensor()
    nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return norm


def whole(tensor: Tensor) -> Tensor:
    """The unsharded tensor. Collective when ``tensor`` is sharded."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
