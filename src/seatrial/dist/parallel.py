"""How a model is laid over the processes: plain functions, applied in a fixed order, that take values."""

from collections.abc import Collection, Sequence
from itertools import pairwise

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from seatrial.model.packed import PackLoss, decoder_blocks

BUCKET_BYTES = 25_000_000
"""Gradients summed in one collective: what PyTorch's own DDP takes, and about a block's adapters at rank 64."""


def process_mesh(world_size: int, shard_size: int, device_type: str) -> DeviceMesh:
    """The processes as FSDP wants them: in one row when all share one copy of the model, else copies x shards.

    Ranks of one node are neighbours, so that a shard size of at most a node's GPUs keeps gathering inside the node.
    """
    if shard_size == world_size:
        return init_device_mesh(device_type, (world_size,), mesh_dim_names=("shard",))
    return init_device_mesh(device_type, (world_size // shard_size, shard_size), mesh_dim_names=("replicate", "shard"))


def shard(
    packed: PackLoss,
    mesh: DeviceMesh,
    *,
    whole_blocks: int = 0,
    compute: torch.dtype | None = None,
    unsharded: Collection[nn.Parameter] = (),
) -> None:
    """Shard parameters over the last dimension of ``mesh`` (FSDP2), and keep copies along the first of two.

    Parameters travel as they are stored, float8 and its scales too. A group for each block; the embedding and the
    head are the two largest matrices and each has its own, unless they are one and the same; the rest is small.

    FSDP averages gradients over ranks by default. Our loss is already divided by the *global* number of trained
    tokens, so they must be summed: hence the divide factor of 1.

    Args:
        whole_blocks: so many blocks, the last ones, keep their gathered parameters from the forward to the backward
            pass, which begins with them; the others give them back and gather them again.
        compute: what weights that are all trained are gathered in, from wider shards that the optimizer updates;
            gradients are then summed in float32. None: as they are stored.
        unsharded: parameters that every process keeps whole, and FSDP does not see.
    """
    policy = MixedPrecisionPolicy(param_dtype=compute, reduce_dtype=torch.float32 if compute is not None else None)
    unseen = set(unsharded)
    plain = decoder_blocks(packed.model)
    blocks = [
        fully_shard(
            block,
            mesh=mesh,
            reshard_after_forward=index < len(plain) - whole_blocks,
            mp_policy=policy,
            ignored_params=unseen & set(block.parameters()),
        )
        for index, block in enumerate(plain)
    ]
    ends: list[FSDPModule] = []
    embedding = packed.model.get_input_embeddings()
    assert isinstance(embedding, nn.Module)
    if embedding.weight is not packed.head.head.weight:
        ends = [
            fully_shard(end, mesh=mesh, reshard_after_forward=True, mp_policy=policy)
            for end in (embedding, packed.head)
        ]
        for end in ends:
            # Neither looks at its weight in the backward pass: an embedding adds up gradients by index, and the loss
            # has computed the gradients in its forward pass.
            end.set_unshard_in_backward(False)
    # The head is reached a second time through the model that it came with.
    done = unseen | set(packed.head.parameters() if ends else ())
    fully_shard(packed, mesh=mesh, reshard_after_forward=False, mp_policy=policy, ignored_params=done)
    # The next block's gathering is asked for before this block's products are, so that it hides behind them.
    for block, following in pairwise(blocks):
        block.set_modules_to_forward_prefetch([following])
        following.set_modules_to_backward_prefetch([block])
    if blocks and ends:
        blocks[-1].set_modules_to_forward_prefetch([ends[-1]])
    for module in packed.modules():
        if isinstance(module, FSDPModule):
            module.set_gradient_divide_factor(1.0)
            module.set_force_sum_reduction_for_comms(True)  # gloo knows no scaled sum


class GradientSum:
    """Sums gradients over the ranks while the backward pass is still computing others. FSDP sums those it shards.

    For a model that every rank holds whole: buckets, their order and the order within them follow from the parameters
    alone, so every rank runs the same collectives, and the sums do not depend on when a gradient came. Gradients are
    views of the summed buckets afterwards.
    """

    def __init__(self, packed: PackLoss, parameters: Sequence[nn.Parameter]) -> None:
        self._sharded = packed if isinstance(packed, FSDPModule) else None
        alone = self._sharded is not None or dist.get_world_size() == 1
        # A backward pass reaches the last parameters first.
        self._buckets = [] if alone else buckets(list(reversed(parameters)))
        self._bucket_of = {parameter: i for i, bucket in enumerate(self._buckets) for parameter in bucket}
        self._missing: list[int] | None = None
        self._under_way: list[tuple[Tensor, dist.Work]] = []
        self._none = torch.zeros((), dtype=torch.float64, device=parameters[0].device)
        for parameter in self._bucket_of:
            parameter.register_post_accumulate_grad_hook(self._arrived)

    def before_backward(self, *, last: bool) -> None:
        """Announce a backward pass. What the last one of a step completes is sent off at once."""
        if self._sharded is not None:
            self._sharded.set_requires_all_reduce(last)  # across copies once a step; within one, pieces are small
        elif last:
            self._missing = [len(bucket) for bucket in self._buckets]

    def wait(self) -> Tensor:
        """Until all gradients are sums over the ranks. A parameter that no local pack reached counts as zero.

        Collective: all ranks must call it, once a step. Returns how many numbers were left out: none, since floats
        that are not finite stay so in a sum (0-d, float64).
        """
        while len(self._under_way) < len(self._buckets):
            self._send()
        for (flat, work), bucket in zip(self._under_way, self._buckets, strict=True):
            work.wait()
            for parameter, summed in zip(bucket, flat.split([p.numel() for p in bucket]), strict=True):
                parameter.grad = summed.view_as(parameter)
        self._under_way, self._missing = [], None
        return self._none

    def _arrived(self, parameter: Tensor) -> None:
        if self._missing is None:
            return
        assert isinstance(parameter, nn.Parameter)
        self._missing[self._bucket_of[parameter]] -= 1
        while len(self._under_way) < len(self._buckets) and self._missing[len(self._under_way)] == 0:
            self._send()

    def _send(self) -> None:
        bucket = self._buckets[len(self._under_way)]
        flat = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        for parameter in bucket:
            parameter.grad = None
        work = dist.all_reduce(flat, async_op=True)
        assert work is not None
        self._under_way.append((flat, work))


def buckets(parameters: Sequence[nn.Parameter]) -> list[list[nn.Parameter]]:
    """The parameters, in order, split into what is summed in one collective: BUCKET_BYTES at most, and of one type."""
    split: list[list[nn.Parameter]] = []
    held = BUCKET_BYTES
    for parameter in parameters:
        size = parameter.numel() * parameter.element_size()
        if held + size > BUCKET_BYTES or parameter.dtype != split[-1][0].dtype:
            split.append([])
            held = 0
        split[-1].append(parameter)
        held += size
    return split


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
