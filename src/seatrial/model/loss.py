"""The loss of the language model on trained positions, without ever holding all logits.

Shapes: S trained positions, C positions of a chunk, E hidden width, V vocabulary.
"""

from typing import Any

import torch
import torch._dynamo
from torch import Tensor

from seatrial.data.pack import IGNORED
from seatrial.model.frozen import product_float32

CHUNK = 2048
"""Positions whose logits exist at one time. 2,048 rows fill an H100; 128,256 logits of each take 0.5 GiB in bf16."""

POSITIONS_MULTIPLE = 128
"""What the number of positions is rounded up to on a GPU, so that products with the head have whole tiles."""

CHUNK_OF_A_TRAINED_HEAD = 8192
"""Every chunk adds to a gradient of the head's own size in float32 (2 GiB): fewer chunks spare that traffic."""


def summed_cross_entropy(hidden_SE: Tensor, head_VE: Tensor, targets_S: Tensor) -> Tensor:
    """Sum, not mean, of the cross-entropy, float32, a scalar: the caller divides by the global count of tokens.

    Positions with target -100 count nothing, so that S can be rounded up. With S = 0 the loss is 0
    with a gradient of 0: a pack of padding still takes part in every collective.
    """
    loss: Tensor = _SummedCrossEntropy.apply(hidden_SE, head_VE, targets_S)  # type: ignore[no-untyped-call]
    return loss


class _SummedCrossEntropy(torch.autograd.Function):
    """Computes the gradient chunk by chunk in the forward pass, while the chunk's logits exist."""

    @staticmethod
    def forward(ctx: Any, hidden_SE: Tensor, head_VE: Tensor, targets_S: Tensor) -> Tensor:
        if torch.is_autocast_enabled(hidden_SE.device.type):
            kind = torch.get_autocast_dtype(hidden_SE.device.type)
            hidden, head = hidden_SE.to(kind), head_VE.to(kind)
        else:
            hidden, head = hidden_SE, head_VE
        loss = torch.zeros((), device=hidden.device, dtype=torch.float32)
        dhidden = torch.empty_like(hidden)
        trained = bool(ctx.needs_input_grad[1])
        dhead = torch.zeros_like(head_VE, dtype=torch.float32) if trained and not len(hidden) else None
        chunk = CHUNK_OF_A_TRAINED_HEAD if trained else CHUNK
        gradient = _compiled if hidden.is_cuda else _losses_and_gradient
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, hidden.shape[0], chunk):
                here = slice(start, start + chunk)
                logits_CV, targets_C = hidden[here] @ head.t(), targets_S[here]
                # The last chunk may have any length: one piece of code for all.
                torch._dynamo.maybe_mark_dynamic(logits_CV, 0)
                torch._dynamo.maybe_mark_dynamic(targets_C, 0)
                losses_C, dlogits_CV = gradient(logits_CV, targets_C)
                loss += losses_C.sum()
                torch.mm(dlogits_CV, head, out=dhidden[here])
                if trained:
                    part = product_float32(dlogits_CV.t(), hidden[here])
                    dhead = part if dhead is None else dhead.add_(part)
        ctx.save_for_backward(dhidden, dhead)
        ctx.kinds = hidden_SE.dtype, head_VE.dtype
        return loss

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        dhidden, dhead = ctx.saved_tensors
        return (
            (dhidden * grad).to(ctx.kinds[0]),
            # In one pass: the head's gradient is the largest tensor of the step.
            None if dhead is None else torch.mul(dhead, grad, out=torch.empty_like(dhead, dtype=ctx.kinds[1])),
            None,
        )


def _losses_and_gradient(logits_CV: Tensor, targets_C: Tensor) -> tuple[Tensor, Tensor]:
    """Loss of each position, and its gradient with respect to the logits, in their type: softmax less one-hot.

    The sum over positions is left to the caller: how it is cut up depends on their number, and so would the code.
    """
    logits = logits_CV.float()
    largest_C1 = logits.amax(-1, keepdim=True)
    log_sum_C1 = (logits - largest_C1).exp().sum(-1, keepdim=True).log() + largest_C1
    counted_C1 = (targets_C != IGNORED).unsqueeze(1)
    targets_C1 = targets_C.clamp(min=0).unsqueeze(1)
    losses_C1 = (log_sum_C1 - logits.gather(1, targets_C1)) * counted_C1
    is_target = torch.arange(logits.shape[1], device=logits.device) == targets_C1
    gradient = ((logits - log_sum_C1).exp() - is_target.float()) * counted_C1
    return losses_C1.squeeze(1), gradient.to(logits_CV.dtype)


_compiled = torch.compile(_losses_and_gradient, dynamic=False)
