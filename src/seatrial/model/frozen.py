"""Products with a frozen weight and a low-rank update, for every number format a frozen base is stored in.

The two products here are opaque to torch.compile: which matrix kernels run, and that the update is added in place,
is decided here; everything element-wise around them (casting to fp8 too) is left outside for the compiler to fuse.

Shapes: T tokens, I input width, O output width (all members of a group side by side), R rank, G = R x members.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from seatrial.model.cublaslt import adds_onto
from seatrial.model.fp8 import FP8, fp8_product, fp8_product_onto, quantise_joined, quantise_rows, transposed
from seatrial.model.nf4 import BYTES, dequantise_nf4, nf4_to_fp8

BaseKind = Literal["dense", "fp8", "nf4"]


def factor(x_TI: Tensor, weight: Sequence[Tensor]) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """``x`` in the format that ``weight`` is multiplied with when that is not its own: float8 and scales."""
    return quantise_rows(x_TI) if row_scales(weight) is not None else (None, None)


def row_scales(weight: Sequence[Tensor]) -> Tensor | None:
    """What the rows of a weight that is multiplied in float8 are scaled with; None for one that is not."""
    if weight[0].dtype == FP8:
        return weight[1]
    return weight[4] if len(weight) == 5 else None


def gradient_factor(grads: Sequence[Tensor], weight: Sequence[Tensor]) -> tuple[Tensor, Tensor] | tuple[None, None]:
    """The same of a gradient, of all members of a group side by side: [T, O].

    The scales of the weight's rows lie along the sum of its product: they go in here.
    """
    scales_O = row_scales(weight)
    if scales_O is None:
        return None, None
    # Of several, opaque: fused with what makes them, the compiler would make each of them twice, and slowly.
    q_TO, scales_T1 = quantise_rows(grads[0] * scales_O) if len(grads) == 1 else quantise_joined(grads, scales_O)
    return q_TO, scales_T1


def frozen_product(
    x_TI: Tensor,
    x_fp8_TI: Tensor | None,
    x_scales_T1: Tensor | None,
    weight: Sequence[Tensor],
    bias_O: Tensor | None,
    updates: Sequence[tuple[Tensor, Tensor]] = (),
) -> Tensor:
    """x W^T + bias: [T, O] in the type of x.

    ``updates``: factors whose products [T, O of a member] are added too, side by side.
    """
    if x_fp8_TI is None or x_scales_T1 is None:
        matrix_OI = _matrix(weight, x_TI.dtype)
        if not updates:
            return torch.nn.functional.linear(x_TI, matrix_OI, bias_O)
        return _sum(updates, bias_O).addmm_(x_TI, matrix_OI.t())
    q_OI = weight[0] if weight[0].dtype == FP8 else nf4_to_fp8(weight, weight[4])
    return _fp8_sum(x_fp8_TI, x_scales_T1, q_OI, row_scales(weight), bias_O, updates, x_TI.dtype)


def frozen_product_backward(
    grad_TO: Tensor,
    grad_fp8_TO: Tensor | None,
    grad_scales_T1: Tensor | None,
    weight: Sequence[Tensor],
    updates: Sequence[tuple[Tensor, Tensor]] = (),
) -> Tensor:
    """grad W and the products of ``updates``: [T, I] in the type of the gradient."""
    if grad_fp8_TO is None or grad_scales_T1 is None:
        matrix_OI = _matrix(weight, grad_TO.dtype)
        return _sum(updates, None).addmm_(grad_TO, matrix_OI) if updates else grad_TO @ matrix_OI
    if weight[0].dtype == BYTES:
        q_IO = nf4_to_fp8(weight, weight[4], transposed=True)
    else:
        q_IO = weight[2] if len(weight) > 2 else transposed(weight[0])
    return _fp8_sum(grad_fp8_TO, grad_scales_T1, q_IO, None, None, updates, grad_TO.dtype)


def _fp8_sum(
    x_TK: Tensor,
    scales_T1: Tensor,
    q_NK: Tensor,
    scales_N: Tensor | None,
    bias_N: Tensor | None,
    updates: Sequence[tuple[Tensor, Tensor]],
    dtype: torch.dtype,
) -> Tensor:
    """x q^T of float8, the bias and the updates: [T, N]."""
    if updates and dtype == torch.bfloat16 and adds_onto(x_TK.device):
        return fp8_product_onto(_sum(updates, bias_N), x_TK, scales_T1, q_NK, scales_N)
    y_TN = fp8_product(x_TK, scales_T1, q_NK, scales_N, dtype)
    if bias_N is not None:
        y_TN.add_(bias_N)
    for (left, right), part in zip(updates, y_TN.split([right.shape[1] for _, right in updates], 1), strict=True):
        part.addmm_(left, right)
    return y_TN


def _sum(updates: Sequence[tuple[Tensor, Tensor]], bias_N: Tensor | None) -> Tensor:
    """The updates side by side, and the bias: [T, N].

    Made before the large product, which adds to what is there for nothing; a skinny one does not.
    """
    widths = [right.shape[1] for _, right in updates]
    first, _ = updates[0]
    out_TN = first.new_empty(first.shape[0], sum(widths))
    biases = [None] * len(widths) if bias_N is None else bias_N.to(first.dtype).split(widths)
    for (left, right), part, bias in zip(updates, out_TN.split(widths, 1), biases, strict=True):
        if bias is None:
            torch.mm(left, right, out=part)
        else:
            torch.addmm(bias, left, right, out=part)
    return out_TN


def _matrix(weight: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """W_OI in ``dtype``; from 4 bits it is made anew for each product, and gone after it."""
    return dequantise_nf4(weight, dtype) if weight[0].dtype == BYTES else weight[0].to(dtype)


@torch.library.custom_op("seatrial::adapted_product", mutates_args=())
def adapted_product(
    x_TI: Tensor,
    x_fp8_TI: Tensor | None,
    x_scales_T1: Tensor | None,
    weight: Sequence[Tensor],
    bias_O: Tensor | None,
    a_GI: Tensor,
    b_OR: Tensor,
    out_sizes: Sequence[int],
    low_TI: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """y = x W^T + bias + (x A^T) B^T, member by member, and x A^T, which the backward needs: [T, O], [T, G].

    ``weight`` is (W_OI,) or, in fp8, (Q_OI, scales_O) with an optional Q_IO; then x comes in both formats.
    In nf4 it is what ``quantise_nf4`` returns, with ``nf4_row_scales`` behind it if it is to be multiplied in fp8.
    ``low_TI`` is what A reads where that is not x: x with dropout.
    """
    xa_TG = (x_TI if low_TI is None else low_TI) @ a_GI.t()
    parts = zip(xa_TG.split(b_OR.shape[1], 1), b_OR.split(out_sizes, 0), strict=True)
    updates = [(xa_TR, b.t()) for xa_TR, b in parts]
    return frozen_product(x_TI, x_fp8_TI, x_scales_T1, weight, bias_O, updates), xa_TG


@adapted_product.register_fake
def _(
    x_TI: Tensor,
    x_fp8_TI: Tensor | None,
    x_scales_T1: Tensor | None,
    weight: Sequence[Tensor],
    bias_O: Tensor | None,
    a_GI: Tensor,
    b_OR: Tensor,
    out_sizes: Sequence[int],
    low_TI: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    return x_TI.new_empty(x_TI.shape[0], b_OR.shape[0]), x_TI.new_empty(x_TI.shape[0], a_GI.shape[0])


@torch.library.custom_op("seatrial::adapted_product_backward", mutates_args=())
def adapted_product_backward(
    grads: Sequence[Tensor],
    grad_fp8_TO: Tensor | None,
    grad_scales_T1: Tensor | None,
    x_TI: Tensor,
    xa_TG: Tensor,
    weight: Sequence[Tensor],
    a_GI: Tensor,
    b_OR: Tensor,
    dropped: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of x [T, I] in its type, A [G, I] and B [O, R] in float32, and of x with dropout [T, I].

    ``grads``: of the outputs of the members, [T, O of the member] each. The last result is empty unless x, which
    here is what A read, was ``dropped``: then it is not in the first.

    In fp8 the gradient comes with the weight's row scales already multiplied in: they lie along the summed dimension.
    """
    rank = b_OR.shape[1]
    gb_TG = torch.empty_like(xa_TG)
    db_members = []
    start = 0
    for member, grad in enumerate(grads):
        ranks, outs = slice(member * rank, (member + 1) * rank), slice(start, start + grad.shape[1])
        torch.mm(grad, b_OR[outs], out=gb_TG[:, ranks])
        db_members.append(product_float32(grad.t(), xa_TG[:, ranks]))
        start = outs.stop
    low_TI = gb_TG @ a_GI if dropped else x_TI.new_empty(0)
    updates = [] if dropped else [(gb_TG, a_GI)]
    # In fp8 the factor is joined already, and this one is not read.
    grad_TO = grads[0] if len(grads) == 1 or grad_fp8_TO is not None else torch.cat(list(grads), 1)
    dx_TI = frozen_product_backward(grad_TO, grad_fp8_TO, grad_scales_T1, weight, updates)
    db_OR = torch.cat(db_members) if len(grads) > 1 else db_members[0]
    return dx_TI, product_float32(gb_TG.t(), x_TI), db_OR, low_TI


@adapted_product_backward.register_fake
def _(
    grads: Sequence[Tensor],
    grad_fp8_TO: Tensor | None,
    grad_scales_T1: Tensor | None,
    x_TI: Tensor,
    xa_TG: Tensor,
    weight: Sequence[Tensor],
    a_GI: Tensor,
    b_OR: Tensor,
    dropped: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return (
        x_TI.new_empty(x_TI.shape),
        a_GI.new_empty(a_GI.shape, dtype=torch.float32),
        b_OR.new_empty(b_OR.shape, dtype=torch.float32),
        x_TI.new_empty(x_TI.shape if dropped else 0),
    )


def product_float32(x: Tensor, y: Tensor) -> Tensor:
    """x y in float32, without rounding the sum to the type of the factors."""
    if x.is_cuda and x.dtype == torch.bfloat16:
        return torch.mm(x, y, out_dtype=torch.float32)
    return x.float() @ y.float()
