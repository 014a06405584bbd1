"""Low-rank adapters (arXiv 2106.09685): y = x Wᵀ + (alpha / rank) · x Aᵀ Bᵀ with W frozen.

Layers that read the same input (query, key and value; gate and up) are computed together: their skinny products are
then few and wide. The model's own code does not notice: in place of each layer stands a member of the group.

Shapes: T tokens, I input width, O output width (all members of a group side by side), R rank, G = R x members.
"""

import hashlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seatrial.errors import UsageError
from seatrial.model.fp8 import quantise_rows
from seatrial.model.frozen import (
    BaseKind,
    adapted_product,
    adapted_product_backward,
    factor,
    gradient_factor,
)
from seatrial.model.group import joined, same_input, take_places
from seatrial.model.mask import dropped
from seatrial.model.nf4 import nf4_row_scales, quantise_nf4


class AdaptedLinear(nn.Module):
    """One or more frozen linear layers of the same input, each with a trainable low-rank update.

    Adapters are float32 whatever the base is; products run in the type of the input.
    """

    def __init__(
        self,
        layers: Mapping[str, nn.Linear],
        rank: int,
        alpha: float,
        generators: Sequence[torch.Generator],
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        linears = list(layers.values())
        self.members = tuple(layers)
        self.in_features = linears[0].in_features
        self.out_sizes = [linear.out_features for linear in linears]
        self.rank = rank
        self.alpha = alpha
        self.kind: BaseKind = "dense"
        self.fp8_products = False
        self.dropout = dropout
        # Which mask dropout follows; without one nothing is dropped.
        self.mask_key: Tensor | None = None
        # Between the calls of the first and the last member: the input, all outputs, and how many are still to come.
        self.held: tuple[Tensor, tuple[Tensor, ...], int] | None = None
        device = linears[0].weight.device
        self.weight_OI = _frozen(joined([linear.weight.detach() for linear in linears]))
        biases: list[Tensor | None] = [linear.bias for linear in linears]
        there = [bias.detach() for bias in biases if bias is not None]
        self.bias_O = _frozen(joined(there)) if len(there) == len(linears) else None
        width = (len(linears) * rank, self.in_features)
        drawn = torch.empty(width, device=device) if device.type == "meta" else self.drawn(generators).to(device)
        self.a_GI = nn.Parameter(drawn)
        self.b_OR = nn.Parameter(torch.zeros(sum(self.out_sizes), rank, device=device))

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    def drawn(self, generators: Sequence[torch.Generator]) -> Tensor:
        """A as training begins, float32 on the CPU: [G, I]. A generator for each member."""
        # Same distribution as nn.Linear's own, so that a rank change does not change the scale of x Aᵀ.
        bound = 1 / math.sqrt(self.in_features)
        return torch.cat(
            [torch.empty(self.rank, self.in_features).uniform_(-bound, bound, generator=g) for g in generators]
        )

    def quantise(self, *, kind: BaseKind = "fp8", transposed: bool = False, fp8_products: bool = False) -> None:
        """Store the base in float8 or 4 bits, once.

        Args:
            transposed: keep a second float8 copy for the backward pass.
            fp8_products: multiply a 4-bit base in float8, not in the type of the input.
        """
        assert self.kind == "dense", "a base is quantised once"
        self.kind = kind
        if kind == "nf4":
            stored = [_frozen(part) for part in quantise_nf4(self.weight_OI)]
            self.weight_OI, self.block_scales_OK, self.scales_OS, self.offsets_O = stored
            self.fp8_products = fp8_products
            if fp8_products:
                self.scales_O = _frozen(nf4_row_scales(stored))
            return
        q_OI, scales_O1 = quantise_rows(self.weight_OI)
        self.weight_OI = _frozen(q_OI)
        self.scales_O = _frozen(scales_O1.squeeze(1))
        if transposed:
            self.weight_IO = _frozen(q_OI.t().contiguous())

    def stored(self) -> list[Tensor]:
        """The base as the frozen products take it."""
        weight: list[Tensor] = [self.weight_OI]
        if self.kind == "nf4":
            weight += [self.block_scales_OK, self.scales_OS, self.offsets_O]
            if self.fp8_products:
                weight.append(self.scales_O)
        if self.kind == "fp8":
            weight.append(self.scales_O)
            if hasattr(self, "weight_IO"):
                weight.append(self.weight_IO)
        return weight

    def forward(self, x: Tensor) -> Tensor:
        """[..., I] -> [..., O]. Members of a group take their own from ``outputs`` instead."""
        return joined(self.outputs(x), -1)

    def outputs(self, x: Tensor) -> tuple[Tensor, ...]:
        """[..., I] -> [..., O of the member] for each member."""
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))
        x_TI = x.reshape(-1, self.in_features)
        parts: tuple[Tensor, ...] = _AdaptedProduct.apply(  # type: ignore[no-untyped-call]
            x_TI,
            self.a_GI,
            self.b_OR,
            self.bias_O,
            self.scale,
            self.out_sizes,
            self.dropout,
            self.mask_key if self.dropout else None,
            *self.stored(),
        )
        return tuple(part.unflatten(0, x.shape[:-1]) for part in parts)

    def halves(self, a_GI: Tensor, b_OR: Tensor) -> Iterator[tuple[str, Tensor, Tensor]]:
        """The name of each member with its own A [R, I] and B [O of the member, R], as views."""
        yield from zip(self.members, a_GI.split(self.rank), b_OR.split(self.out_sizes), strict=True)

    def merged(self) -> dict[str, nn.Linear]:
        """Plain linear layers with the update added to the weight; the sum is rounded once, from float32."""
        assert self.kind == "dense", "a merge starts from the unquantised base"
        biases = [None] * len(self.members) if self.bias_O is None else list(self.bias_O.split(self.out_sizes))
        plain = {}
        for (name, a_RI, b_OR), weight_OI, bias_O in zip(
            self.halves(self.a_GI.detach(), self.b_OR.detach()),
            self.weight_OI.split(self.out_sizes),
            biases,
            strict=True,
        ):
            linear = nn.Linear(weight_OI.shape[1], weight_OI.shape[0], bias_O is not None, device="meta")
            linear.weight = _frozen((weight_OI.float() + b_OR @ a_RI * self.scale).to(weight_OI.dtype))
            if bias_O is not None:
                linear.bias = _frozen(bias_O.clone())
            plain[name] = linear
        return plain


class _AdaptedProduct(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x_TI: Tensor,
        a_GI: Tensor,
        b_OR: Tensor,
        bias_O: Tensor | None,
        scale: float,
        out_sizes: list[int],
        dropout: float,
        mask_key: Tensor | None,
        *weight: Tensor,
    ) -> tuple[Tensor, ...]:
        a, b = a_GI.to(x_TI.dtype), (b_OR * scale).to(x_TI.dtype)
        x_fp8, x_scales = factor(x_TI, weight)
        low_TI = None if mask_key is None else dropped(x_TI, mask_key, dropout)
        y_TO, xa_TG = adapted_product(x_TI, x_fp8, x_scales, list(weight), bias_O, a, b, out_sizes, low_TI)
        ctx.save_for_backward(x_TI, xa_TG, a_GI, b_OR, mask_key, *weight)
        ctx.scale, ctx.dropout = scale, dropout
        assert isinstance(y_TO, Tensor)
        return tuple(y_TO.split(out_sizes, 1))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        x_TI, xa_TG, a_GI, b_OR, mask_key, *weight = ctx.saved_tensors
        a, b = a_GI.to(x_TI.dtype), (b_OR * ctx.scale).to(x_TI.dtype)
        grad_fp8, grad_scales = gradient_factor(grads, weight)
        low_TI = x_TI if mask_key is None else dropped(x_TI, mask_key, ctx.dropout)
        dx_TI, da_GI, db_OR, dlow_TI = adapted_product_backward(
            grads, grad_fp8, grad_scales, low_TI, xa_TG, weight, a, b, mask_key is not None
        )
        if mask_key is not None:
            dx_TI = dx_TI + dropped(dlow_TI, mask_key, ctx.dropout)
        return dx_TI, da_GI, db_OR * ctx.scale, *(None for _ in range(5 + len(weight)))


def apply_lora(
    model: nn.Module, *, targets: Sequence[str], rank: int, alpha: float, seed: int, dropout: float = 0.0
) -> None:
    """Freeze ``model`` and put adapters on every linear layer whose last name part is in ``targets``.

    Each adapter is drawn from its own generator, keyed by seed and name: it does not depend on which other
    layers are adapted, nor in what order. A model on the meta device is given its first adapters when it is filled.

    Raises:
        UsageError: a target names no linear layer of this model; says which names there are.
    """
    model.requires_grad_(False)
    found = {name: child for name, child in model.named_modules() if isinstance(child, nn.Linear)}
    missing = set(targets) - {name.rpartition(".")[2] for name in found}
    if missing:
        there = sorted({name.rpartition(".")[2] for name in found})
        raise UsageError(
            f"lora.targets: no linear layer is called {', '.join(sorted(missing))}; this model has {', '.join(there)}"
        )
    for parent_name, names in same_input([name for name in found if name.rpartition(".")[2] in targets]):
        parent = model.get_submodule(parent_name)
        paths = [f"{parent_name}.{name}".lstrip(".") for name in names]
        layers = {name: found.pop(path) for name, path in zip(names, paths, strict=True)}
        group = AdaptedLinear(layers, rank, alpha, [generator(seed, path) for path in paths], dropout)
        take_places(parent, group)


def initial_a(layer: AdaptedLinear, name: str, seed: int) -> Tensor:
    """A that ``apply_lora`` draws for the layer of this name: [G, I]."""
    parent = name.rpartition(".")[0]
    return layer.drawn([generator(seed, f"{parent}.{member}".lstrip(".")) for member in layer.members])


def quantise_base(
    model: nn.Module, *, kind: BaseKind = "fp8", transposed: bool = False, fp8_products: bool = False
) -> None:
    """Store the base of every adapted layer in float8 or 4 bits, one after another; see ``AdaptedLinear.quantise``."""
    for _, layer in adapted_layers(model):
        layer.quantise(kind=kind, transposed=transposed, fp8_products=fp8_products)


def merge_lora(model: nn.Module) -> None:
    """Replace every adapted layer by the plain one that computes the same."""
    for name, adapted in list(adapted_layers(model)):
        parent_name, _, last = name.rpartition(".")
        parent = model.get_submodule(parent_name)
        delattr(parent, last)
        for member, linear in adapted.merged().items():
            setattr(parent, member, linear)


def adapted_layers(model: nn.Module) -> Iterator[tuple[str, AdaptedLinear]]:
    """Adapted layers and groups of layers, with their names as modules."""
    for name, module in model.named_modules():
        if isinstance(module, AdaptedLinear):
            yield name, module


def adapters_by_layer(model: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Split tensors named as the parameters of the adapted ``model`` into those of the single layers.

    The names are those of the plain layers with '.a_RI' or '.b_OR' after them; the tensors are views.
    """
    split: dict[str, Tensor] = {}
    for name, layer in adapted_layers(model):
        parent = name.rpartition(".")[0]
        for member, a_RI, b_OR in layer.halves(tensors[f"{name}.a_GI"], tensors[f"{name}.b_OR"]):
            path = f"{parent}.{member}".lstrip(".")
            split |= {f"{path}.a_RI": a_RI, f"{path}.b_OR": b_OR}
    return split


def _frozen(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)


def generator(seed: int, name: str, device: torch.device | None = None) -> torch.Generator:
    """Random numbers of one tensor, the same whatever else is drawn, and where and when."""
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator(device or "cpu").manual_seed(int.from_bytes(digest[:8], "big") >> 1)
