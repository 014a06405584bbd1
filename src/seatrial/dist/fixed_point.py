"""Gradients summed in whole numbers: the same bits in whatever order, over however many processes.

A sum of floats depends on the order of its terms, so on how packs are dealt out to processes. Each pack's gradient is
therefore rounded to a multiple of 2^-40 and summed as a 64-bit integer, over the packs of a process and then over the
processes. What comes out is the sum over the packs of the step, to the bit, and so is every weight after it.

Shapes: N numbers of a bucket (some parameters, flat, side by side).
"""

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from seatrial.dist.parallel import buckets

SCALE = 2.0**40
"""Steps of 9e-13: four orders below AdamW's eps (1e-8), under which a gradient moves nothing anyway."""

LARGEST_SUM = 2.0**62
"""No sum may leave 63 bits; one bit is kept for rounding up."""


class FixedPointSum:
    """Sums the gradients of parameters that every process holds whole, as :class:`~seatrial.dist.parallel.GradientSum`.

    A bucket is converted when a pack has reached all of its parameters, and sent off when the last pack has, while
    the backward pass is still computing others.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], *, packs_per_step: int) -> None:
        # A backward pass reaches the last parameters first.
        self._buckets = buckets(list(reversed(parameters)))
        self._bucket_of = {parameter: i for i, bucket in enumerate(self._buckets) for parameter in bucket}
        self._limit = largest_gradient(packs_per_step)
        self._refused = torch.zeros((), dtype=torch.int32, device=parameters[0].device)
        self._sums: list[Tensor | None] = [None] * len(self._buckets)
        self._missing: list[int] | None = None
        self._last = False
        self._under_way: list[dist.Work] = []
        for parameter in self._bucket_of:
            parameter.register_post_accumulate_grad_hook(self._arrived)

    def before_backward(self, *, last: bool) -> None:
        """Announce the backward pass of a pack, and whether it is this process's last one of the step."""
        self._take_what_is_left()
        self._missing = [len(bucket) for bucket in self._buckets]
        self._last = last

    def wait(self) -> Tensor:
        """Until all gradients are sums over the packs of the step. A parameter that no pack reached counts as zero.

        Collective: all ranks must call it, once a step.

        Returns:
            Above 0 where this process met a number that is not finite, or larger than :func:`largest_gradient`; it
            was left out of the sum. 0-d, float64.
        """
        self._take_what_is_left()
        self._last = True
        self._send_what_is_complete()
        for work, bucket, summed_N in zip(self._under_way, self._buckets, self._sums, strict=True):
            work.wait()
            assert summed_N is not None
            flat_N = summed_N * (1.0 / SCALE)  # in float32, rounded once
            for parameter, gradient in zip(bucket, flat_N.split([p.numel() for p in bucket]), strict=True):
                parameter.grad = gradient.view_as(parameter)
        refused = self._refused.double()
        self._refused.zero_()
        self._sums, self._under_way, self._missing = [None] * len(self._buckets), [], None
        return refused

    def _arrived(self, parameter: Tensor) -> None:
        if self._missing is None:
            return
        assert isinstance(parameter, nn.Parameter)
        index = self._bucket_of[parameter]
        self._missing[index] -= 1
        if self._missing[index] == 0:
            self._take(index)
            self._send_what_is_complete()

    def _take_what_is_left(self) -> None:
        """Buckets that the backward pass of the pack did not reach, or only in part."""
        for index, missing in enumerate(self._missing or []):
            if missing:
                self._take(index)
        self._missing = [0] * len(self._buckets)

    def _take(self, index: int) -> None:
        bucket = self._buckets[index]
        flat_N = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        for parameter in bucket:
            parameter.grad = None
        self._sums[index] = add_fixed(flat_N, self._sums[index], self._refused, self._limit)

    def _send_what_is_complete(self) -> None:
        """In the order of the buckets, which is the same on every rank."""
        while self._last and len(self._under_way) < len(self._buckets) and not self._awaited(len(self._under_way)):
            summed_N = self._sums[len(self._under_way)]
            assert summed_N is not None
            work = dist.all_reduce(summed_N, async_op=True)
            assert work is not None
            self._under_way.append(work)

    def _awaited(self, index: int) -> bool:
        return self._missing is None or self._missing[index] > 0


def largest_gradient(packs_per_step: int) -> float:
    """What a number of one pack's gradient must stay below, so that no sum over the packs of a step overflows.

    Of the loss as it is trained on, divided by the trained tokens of the step: 524,288 at 8 packs.
    """
    return LARGEST_SUM / SCALE / packs_per_step


def add_fixed(flat_N: Tensor, sum_N: Tensor | None, refused: Tensor, limit: float) -> Tensor:
    """``sum_N`` (int64; None: zero) plus ``flat_N`` (float32) rounded to multiples of 1 / SCALE, in place.

    A number that is not finite or not below ``limit`` counts as zero, and makes ``refused`` (0-d, int32) positive.
    """
    if flat_N.is_cuda:
        from seatrial.dist.fixed_point_kernels import add_fixed as add_on_gpu

        return add_on_gpu(flat_N, sum_N, refused, limit)
    sound_N = flat_N.abs() < limit  # false of NaN
    refused += (~sound_N).any().int()
    whole_N = (flat_N * SCALE + 0.5).floor().where(sound_N, 0.0).to(torch.int64)
    return whole_N if sum_N is None else sum_N.add_(whole_N)
