"""The loss of the language model on trained positions, without ever holding all logits.

Shapes: S trained positions, C positions of a chunk, E hidden width, V vocabulary.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch._dynamo
from torch import Tensor

from seatrial.data.pack import IGNORED
from seatrial.model.fp8 import FP8, FP8_MAX, SMALLEST, fp8_product, transposed
from seatrial.model.frozen import product_float32

CHUNK = 2048
"""Positions whose logits exist at one time. 2,048 rows fill an H100; 128,256 logits of each take 0.5 GiB in bf16."""

POSITIONS_MULTIPLE = 128
"""What the number of positions is rounded up to on a GPU, so that products with the head have whole tiles."""

CHUNK_OF_A_TRAINED_HEAD = 8192
"""Every chunk adds to a gradient of the head's own size in float32 (2 GiB): fewer chunks spare that traffic."""


SLABS = 16
"""In so many pieces a head is cast to float8, so that what is made on the way takes little memory."""

COLUMNS_MULTIPLE = 16
"""What float8 units want the vocabulary and the hidden width to be a multiple of."""


@dataclass(frozen=True, eq=False)
class QuantisedHead:
    """A frozen head in float8, as the derivative of its product reads it, with a scale for each hidden column."""

    q_EV: Tensor
    scales_E: Tensor


def quantise_head(head_VE: Tensor) -> QuantisedHead | None:
    """None: float8 units do not multiply this shape."""
    if head_VE.shape[0] % COLUMNS_MULTIPLE or head_VE.shape[1] % COLUMNS_MULTIPLE:
        return None
    slabs = head_VE.detach().tensor_split(SLABS)
    largest_E = torch.stack([slab.abs().amax(0) for slab in slabs]).amax(0).float().clamp(min=SMALLEST)
    q_VE = torch.cat([(slab * (FP8_MAX / largest_E)).to(FP8) for slab in slabs])
    return QuantisedHead(transposed(q_VE), largest_E / FP8_MAX)


def summed_cross_entropy(
    hidden_SE: Tensor, head_VE: Tensor, targets_S: Tensor, quantised: QuantisedHead | None = None
) -> Tensor:
    """Sum, not mean, of the cross-entropy, float32, a scalar: the caller divides by the global count of tokens.

    Positions with target -100 count nothing, so that S can be rounded up. With S = 0 the loss is 0
    with a gradient of 0: a pack of padding still takes part in every collective.

    Args:
        quantised: of a frozen head; what other tokens than the target add to the gradient is then multiplied in
            float8. The logits, and so the loss, are not.
    """
    loss: Tensor = _SummedCrossEntropy.apply(hidden_SE, head_VE, targets_S, quantised)  # type: ignore[no-untyped-call]
    return loss


class _SummedCrossEntropy(torch.autograd.Function):
    """Computes the gradient chunk by chunk in the forward pass, while the chunk's logits exist."""

    @staticmethod
    def forward(
        ctx: Any, hidden_SE: Tensor, head_VE: Tensor, targets_S: Tensor, quantised: QuantisedHead | None
    ) -> Tensor:
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
        gradient_fp8 = _compiled_fp8 if hidden.is_cuda else _losses_and_fp8_gradient
        with torch.autocast(hidden.device.type, enabled=False):
            for start in range(0, hidden.shape[0], chunk):
                here = slice(start, start + chunk)
                logits_CV, targets_C = hidden[here] @ head.t(), targets_S[here]
                # The last chunk may have any length: one piece of code for all.
                torch._dynamo.maybe_mark_dynamic(logits_CV, 0)
                torch._dynamo.maybe_mark_dynamic(targets_C, 0)
                if quantised is not None:
                    losses_C, others_CV, scales_C1, target_C1 = gradient_fp8(logits_CV, targets_C)
                    others_CE = fp8_product(others_CV, scales_C1, quantised.q_EV, quantised.scales_E, hidden.dtype)
                    torch.addcmul(others_CE, target_C1, head[targets_C.clamp(min=0)], out=dhidden[here])
                else:
                    losses_C, dlogits_CV = gradient(logits_CV, targets_C)
                    torch.mm(dlogits_CV, head, out=dhidden[here])
                    if trained:
                        part = product_float32(dlogits_CV.t(), hidden[here])
                        dhead = part if dhead is None else dhead.add_(part)
                loss += losses_C.sum()
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


def _losses_and_fp8_gradient(logits_CV: Tensor, targets_C: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Loss of each position, and its gradient in two parts.

    The softmax without the target, in float8 with a scale for each position; and at the target, in the logits' type.
    Apart, because a trained model is nearly sure: rounded with the rest, softmax less one would be all error.
    """
    logits = logits_CV.float()
    targets_C1 = targets_C.clamp(min=0).unsqueeze(1)
    is_target = torch.arange(logits.shape[1], device=logits.device) == targets_C1
    of_target_C1 = logits.gather(1, targets_C1)
    others = logits.masked_fill(is_target, -torch.inf)
    largest_C1 = others.amax(-1, keepdim=True)
    log_sum_C1 = torch.logaddexp((others - largest_C1).exp().sum(-1, keepdim=True).log() + largest_C1, of_target_C1)
    counted_C1 = targets_C.unsqueeze(1) != IGNORED
    losses_C1 = (log_sum_C1 - of_target_C1) * counted_C1
    # The largest of a row becomes 448, whatever its probability is.
    q_CV = ((others - largest_C1).exp() * FP8_MAX).to(FP8)
    scales_C1 = (largest_C1 - log_sum_C1).exp() * counted_C1 / FP8_MAX
    target_C1 = (of_target_C1 - log_sum_C1).expm1() * counted_C1
    return losses_C1.squeeze(1), q_CV, scales_C1, target_C1.to(logits_CV.dtype)


_compiled = torch.compile(_losses_and_gradient, dynamic=False)
_compiled_fp8 = torch.compile(_losses_and_fp8_gradient, dynamic=False)
