"""Training every weight: decoder layers in groups, with products in bfloat16 or in float8.

In float8 nothing is stored that is not stored in bfloat16: the weights, which the optimizer holds in float32, are
quantised once a step and multiplied in float8 by every pack of it. Two ways to scale:

- ``tensor``: one scale a tensor, and all three products of a layer in float8. The product for the weight's gradient
  sums over tokens, so activations and gradients are laid out a second time, tokens last. Gradients are e5m2: their
  rows differ by more than e4m3 can hold under one scale (arXiv 2209.05433). The scale is that of the whole pack, so a
  document's loss depends in its last bits on the documents beside it.
- ``row``: one scale a token and one an output channel; the weight's gradient is computed in the type of the input,
  as such scales lie along its sum. Slower and more exact, and no document sees another. Activations are kept in the
  type of the input, not in float8.

Embedding, norms and head stay as they are.

Shapes: T tokens, I input width, O output width (all members of a group side by side).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from seatrial.model.fp8 import FP8, has_fp8_units, quantise_rows
from seatrial.model.frozen import product_float32
from seatrial.model.group import joined, same_input, take_places
from seatrial.model.packed import decoder_blocks

Scaling = Literal["tensor", "row"]

SCALING: Scaling = "tensor"
"""What full training in float8 takes: the faster one."""

FP8_GRADIENT = torch.float8_e5m2
_LARGEST = {kind: torch.finfo(kind).max for kind in (FP8, FP8_GRADIENT)}

MULTIPLE = 16
"""Widths, and under ``tensor`` the tokens of a pack, that float8 units multiply (cuBLAS: 16 bytes a row)."""


class TrainedLinear(nn.Module):
    """One or more linear layers of the same input, trained in full; products run in the type of the input or in fp8."""

    quantised: tuple[Tensor, Tensor, Tensor] | None
    """Q_OI, Q_IO and scale(s) of the weight as it was at the last :meth:`quantise`."""

    def __init__(self, layers: Mapping[str, nn.Linear], fp8: Scaling | None) -> None:
        super().__init__()
        linears = list(layers.values())
        self.members = tuple(layers)
        self.in_features = linears[0].in_features
        self.out_sizes = [linear.out_features for linear in linears]
        self.fp8 = fp8
        self.exact_gradients = True
        self.held: tuple[Tensor, tuple[Tensor, ...], int] | None = None
        self.quantised = None
        self.weight_OI = nn.Parameter(joined([linear.weight for linear in linears]).detach())
        biases: list[Tensor | None] = [linear.bias for linear in linears]
        there = [bias for bias in biases if bias is not None]
        assert len(there) in (0, len(linears)), f"of {', '.join(layers)} some have a bias and some have none"
        self.bias_O = nn.Parameter(joined(there).detach()) if there else None

    @torch.no_grad()
    def quantise(self) -> None:
        """Take the weight as it is now for all products until the next call. In place, so that addresses stay."""
        assert self.fp8 is not None
        quantised = (_quantised_compiled if self.weight_OI.is_cuda else _quantised)(self.weight_OI, self.fp8)
        if self.quantised is None:
            self.quantised = quantised
        else:
            for kept, new in zip(self.quantised, quantised, strict=True):
                kept.copy_(new)

    def outputs(self, x: Tensor) -> tuple[Tensor, ...]:
        """[..., I] -> [..., O of the member] for each member."""
        return self(x).split(self.out_sizes, dim=-1)  # type: ignore[no-any-return]

    def forward(self, x: Tensor) -> Tensor:
        """[..., I] -> [..., O]."""
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        if self.fp8 is None:
            return F.linear(x, self.weight_OI, self.bias_O)
        y_TO: Tensor = _Fp8Product.apply(  # type: ignore[no-untyped-call]
            x.reshape(-1, self.in_features),
            self.weight_OI,
            self.fp8,
            self.exact_gradients,
            *(self.quantised or (None, None, None)),
        )
        if self.bias_O is not None:
            y_TO = y_TO + self.bias_O.to(y_TO.dtype)
        return y_TO.view(*x.shape[:-1], -1)


class _Fp8Product(torch.autograd.Function):
    """x W^T with products in float8, from a weight quantised before or, where none is given, on the way."""

    @staticmethod
    def forward(
        ctx: Any,
        x_TI: Tensor,
        weight_OI: Tensor,
        scaling: Scaling,
        exact_gradients: bool,
        q_OI: Tensor | None,
        q_IO: Tensor | None,
        weight_scale: Tensor | None,
    ) -> Tensor:
        ctx.scaling, ctx.exact, ctx.weight_dtype = scaling, exact_gradients, weight_OI.dtype
        if q_OI is None or q_IO is None or weight_scale is None:
            q_OI, _, weight_scale = _quantised(weight_OI, scaling)
            weight: tuple[Tensor, ...] = (weight_OI,)
        else:
            weight = (q_IO, weight_scale)
        if scaling == "tensor":
            q_TI, x_scale = quantise_tensor(x_TI, FP8)
            ctx.save_for_backward(q_TI.t().contiguous(), x_scale, *weight)
        else:
            q_TI, x_scale = quantise_rows(x_TI)
            ctx.save_for_backward(x_TI, x_scale, *weight)
        y_TO = scaled_product(q_TI, q_OI, x_scale, weight_scale, x_TI.dtype, True)
        assert isinstance(y_TO, Tensor)
        return y_TO

    @staticmethod
    def backward(ctx: Any, grad_TO: Tensor) -> tuple[Tensor | None, ...]:
        kept, x_scale, *weight = ctx.saved_tensors
        q_IO, weight_scale = weight if len(weight) == 2 else _quantised(weight[0], ctx.scaling)[1:]
        if ctx.scaling == "tensor":
            q_TO, scale = quantise_tensor(grad_TO, FP8_GRADIENT)
            dx_TI = scaled_product(q_TO, q_IO, scale, weight_scale, grad_TO.dtype, not ctx.exact)
            dw_OI = scaled_product(q_TO.t().contiguous(), kept, scale, x_scale, ctx.weight_dtype, not ctx.exact)
        else:
            # The scales of the weight's rows lie along the sum of this product: they go into the other factor.
            q_TO, scale_T1 = quantise_rows(grad_TO * weight_scale)
            dx_TI = scaled_product(q_TO, q_IO, scale_T1, None, grad_TO.dtype, not ctx.exact)
            wide = ctx.weight_dtype == torch.float32
            dw_OI = product_float32(grad_TO.t(), kept) if wide else grad_TO.t() @ kept
        return dx_TI, dw_OI, None, None, None, None, None


@torch.library.custom_op("seatrial::scaled_product", mutates_args=())
def scaled_product(
    x_MK: Tensor, y_NK: Tensor, x_scale: Tensor, y_scale: Tensor | None, out: torch.dtype, fast: bool
) -> Tensor:
    """x y^T of float8 matrices: [M, N]. Opaque to torch.compile, which otherwise would choose kernels of its own.

    Args:
        x_scale: a scalar, or [M, 1]; with a scalar ``y_scale`` is one too.
        y_scale: a scalar, or [N]; None stands for ones under row scales.
        fast: let the units add up to 128 products before they round to float32 (cuBLAS: fast accumulation).
    """
    if x_scale.dim() > 0:
        y_scale = x_scale.new_ones(1, y_NK.shape[0]) if y_scale is None else y_scale.unsqueeze(0)
    assert y_scale is not None
    if has_fp8_units(x_MK.device):
        return torch._scaled_mm(x_MK, y_NK.t(), x_scale, y_scale, out_dtype=out, use_fast_accum=fast)
    wide = torch.bfloat16 if x_MK.is_cuda else torch.float32
    return ((x_MK.to(wide) @ y_NK.to(wide).t()).float() * x_scale * y_scale).to(out)


@scaled_product.register_fake
def _(x_MK: Tensor, y_NK: Tensor, x_scale: Tensor, y_scale: Tensor | None, out: torch.dtype, fast: bool) -> Tensor:
    return x_MK.new_empty(x_MK.shape[0], y_NK.shape[0], dtype=out)


def quantise_tensor(x: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor]:
    """[..., W] -> float8 of the same shape and one float32 scale, with x = q * scale, the largest at the format's end.

    The largest of each row first: that is found while the kernel that makes ``x`` still has the row at hand.
    """
    largest = x.abs().amax(-1).amax().float().clamp(min=1e-12)
    return (x.float() * (_LARGEST[kind] / largest)).to(kind), largest / _LARGEST[kind]


def _quantised(weight_OI: Tensor, scaling: Scaling) -> tuple[Tensor, Tensor, Tensor]:
    """Both layouts, [O, I] and [I, O], and the scale, or scales [O]."""
    if scaling == "tensor":
        q_OI, scale = quantise_tensor(weight_OI, FP8)
    else:
        q_OI, scales_O1 = quantise_rows(weight_OI)
        scale = scales_O1.squeeze(1)
    return q_OI, q_OI.t().contiguous(), scale


_quantised_compiled = torch.compile(_quantised, dynamic=False)


def group_layers(model: PreTrainedModel, *, fp8: Scaling | None) -> None:
    """Compute the decoder's layers of the same input as one; in float8, put its other linear layers into it too."""
    for block in decoder_blocks(model):
        found = {name: child for name, child in block.named_modules() if isinstance(child, nn.Linear)}
        for parent_name, names in same_input(list(found)):
            if len(names) == 1 and fp8 is None:
                continue
            parent = block.get_submodule(parent_name)
            layers = {name: found[f"{parent_name}.{name}".lstrip(".")] for name in names}
            group = TrainedLinear(layers, fp8 if _fits_units(list(layers.values())) else None)
            take_places(parent, group)


def trained_layers(model: nn.Module) -> Iterator[tuple[str, TrainedLinear]]:
    """Layers and groups of layers put in by :func:`group_layers`, with their names as modules."""
    for name, module in model.named_modules():
        if isinstance(module, TrainedLinear):
            yield name, module


def quantise_weights(model: nn.Module) -> None:
    """Once a step: take every float8 layer's weight as it is now. A sharded model must be gathered."""
    for _, layer in trained_layers(model):
        if layer.fp8 is not None:
            layer.quantise()


def weights_by_layer(model: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors named as the parameters of the grouped ``model``, by the names of its plain layers; parts are views."""
    plain = dict(tensors)
    for name, layer in trained_layers(model):
        parent = name.rpartition(".")[0]
        for own, theirs in (("weight_OI", "weight"), ("bias_O", "bias")):
            if (joined := plain.pop(f"{name}.{own}", None)) is not None:
                parts = joined.split(layer.out_sizes)
                plain |= {
                    f"{parent}.{member}.{theirs}": part for member, part in zip(layer.members, parts, strict=True)
                }
    return plain


def _fits_units(linears: Sequence[nn.Linear]) -> bool:
    return linears[0].in_features % MULTIPLE == 0 and sum(layer.out_features for layer in linears) % MULTIPLE == 0
