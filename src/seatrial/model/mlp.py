"""Gated MLPs whose three layers are adapted, computed as one on a GPU (see fused_mlp for why and how).

Shapes: T tokens, I input width, M intermediate width, R rank.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from seatrial.model.fp8 import has_fp8_units
from seatrial.model.frozen import factor, gradient_factor, row_scales
from seatrial.model.lora import AdaptedLinear


class AdaptedMLP(nn.Module):
    """down(silu(gate(x)) * up(x)) with the parameters, and their names, of the layers it was made of."""

    def __init__(self, gate_up: AdaptedLinear, down: AdaptedLinear, *, keep: bool) -> None:
        super().__init__()
        self.gate_proj_up_proj = gate_up
        self.down_proj = down
        self.keep = keep

    def forward(self, x: Tensor) -> Tensor:
        """[..., I] -> [..., I]."""
        up, down = self.gate_proj_up_proj, self.down_proj
        y_TI: Tensor = _AdaptedMLP.apply(  # type: ignore[no-untyped-call]
            x.reshape(-1, up.in_features),
            up.a_GI,
            up.b_OR,
            down.a_GI,
            down.b_OR,
            up.scale,
            down.scale,
            self.keep,
            *up.stored(),
            *down.stored(),
        )
        return y_TI.view(x.shape)


def fuse_mlps(model: nn.Module, *, keep: bool) -> int:
    """Replace every gated MLP that the kernels can compute; returns how many were. For a model that runs on a GPU.

    Args:
        keep: gate and up [T, 2M] for the backward pass, rather than compute them again.
    """
    found = [(name, fused) for name, module in model.named_modules() if (fused := _fused(module, keep))]
    for name, fused in found:
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, fused)
    return len(found)


def will_fuse(config: Mapping[str, Any], targets: Sequence[str], rank: int, dtype: torch.dtype) -> bool:
    """Whether ``fuse_mlps`` will take the MLPs of a model, told by its config.json, on a GPU."""
    wanted = {"gate_proj", "up_proj", "down_proj"} <= set(targets) and config.get("hidden_act") in ("silu", "swish")
    return wanted and not config.get("mlp_bias") and _supports(rank, dtype)


def _supports(rank: int, dtype: torch.dtype) -> bool:
    """The kernels multiply tiles of at least 16 and keep a whole rank in registers."""
    return dtype == torch.bfloat16 and rank in (16, 32, 64, 128)


def _fused(mlp: nn.Module, keep: bool) -> AdaptedMLP | None:
    up, down = (getattr(mlp, name, None) for name in ("gate_proj_up_proj", "down_proj"))
    if not isinstance(up, AdaptedLinear) or not isinstance(down, AdaptedLinear) or up.rank != down.rank:
        return None
    silu = type(getattr(mlp, "act_fn", None)).__name__ in ("SiLU", "SiLUActivation")  # torch's, or transformers' own
    if not silu or up.bias_O is not None or down.bias_O is not None:
        return None
    if row_scales(up.stored()) is not None and not has_fp8_units(up.weight_OI.device):
        return None  # Triton casts to float8 only where the device does
    dtype = torch.bfloat16 if up.kind != "dense" else up.weight_OI.dtype
    return AdaptedMLP(up, down, keep=keep) if _supports(up.rank, dtype) else None


class _AdaptedMLP(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x_TI: Tensor,
        a_up: Tensor,
        b_up: Tensor,
        a_down: Tensor,
        b_down: Tensor,
        up_scale: float,
        down_scale: float,
        keep: bool,
        *weights: Tensor,
    ) -> Tensor:
        from seatrial.model.fused_mlp import fused_mlp

        half = len(weights) // 2
        kind = x_TI.dtype
        halves = [a_up.to(kind), (b_up * up_scale).to(kind), a_down.to(kind), (b_down * down_scale).to(kind)]
        x_fp8, x_scales = factor(x_TI, weights)
        y_TI, gate_up, xa, ha = fused_mlp(
            x_TI, x_fp8, x_scales, list(weights[:half]), *halves[:2], list(weights[half:]), *halves[2:], keep
        )
        ctx.save_for_backward(x_TI, gate_up, xa, ha, a_up, b_up, a_down, b_down, *weights)
        ctx.scales = up_scale, down_scale
        assert isinstance(y_TI, Tensor)
        return y_TI

    @staticmethod
    def backward(ctx: Any, grad_TI: Tensor) -> tuple[Tensor | None, ...]:
        from seatrial.model.fused_mlp import fused_mlp_backward

        x_TI, gate_up, xa, ha, a_up, b_up, a_down, b_down, *weights = ctx.saved_tensors
        half = len(weights) // 2
        kind = x_TI.dtype
        up_scale, down_scale = ctx.scales
        halves = [a_up.to(kind), (b_up * up_scale).to(kind), a_down.to(kind), (b_down * down_scale).to(kind)]
        grad_fp8, grad_scales = gradient_factor([grad_TI], weights[half:])
        dx_TI, da_up, db_up, da_down, db_down = fused_mlp_backward(
            grad_TI, grad_fp8, grad_scales, x_TI, gate_up, xa, ha,
            weights[:half], *halves[:2], weights[half:], *halves[2:],
        )  # fmt: skip
        nothing = (None,) * (3 + len(weights))
        return dx_TI, da_up, db_up * up_scale, da_down, db_down * down_scale, *nothing
