"""Low-rank adapters (arXiv 2106.09685): y = x Wᵀ + (alpha / rank) · x Aᵀ Bᵀ with W frozen.

Shapes: I input width, O output width, R rank.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seatrial.errors import UsageError


class LoRALinear(nn.Module):
    """A frozen linear layer with a trainable low-rank update. Adapters are float32 whatever the base is."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float, generator: torch.Generator) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.rank = rank
        self.alpha = alpha
        device = base.weight.device
        # Same distribution as nn.Linear's own, so that a rank change does not change the scale of x Aᵀ.
        bound = 1 / math.sqrt(base.in_features)
        a_RI = torch.empty(rank, base.in_features).uniform_(-bound, bound, generator=generator)
        self.a_RI = nn.Parameter(a_RI.to(device))
        self.b_OR = nn.Parameter(torch.zeros(base.out_features, rank, device=device))

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    def forward(self, x: Tensor) -> Tensor:
        """[..., I] -> [..., O], in the base's output type."""
        y: Tensor = self.base(x)
        update = F.linear(F.linear(x.to(self.a_RI.dtype), self.a_RI), self.b_OR)
        return y + (update * self.scale).to(y.dtype)

    def merged(self) -> nn.Linear:
        """A plain linear layer with the update added to the weight; the sum is rounded once, from float32."""
        update_OI = self.b_OR.detach() @ self.a_RI.detach() * self.scale
        weight_OI = (self.base.weight.float() + update_OI).to(self.base.weight.dtype)
        plain = nn.Linear(self.base.in_features, self.base.out_features, self.base.bias is not None, device="meta")
        plain.weight = nn.Parameter(weight_OI, requires_grad=False)
        plain.bias = self.base.bias
        return plain


def apply_lora(model: nn.Module, *, targets: Sequence[str], rank: int, alpha: float, seed: int) -> None:
    """Freeze ``model`` and put adapters on every linear layer whose last name part is in ``targets``.

    Each adapter is drawn from its own generator, keyed by seed and name: it does not depend on which other
    layers are adapted, nor in what order.

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
    for name, linear in found.items():
        parent, _, last = name.rpartition(".")
        if last in targets:
            adapted = LoRALinear(linear, rank, alpha, _generator(seed, name))
            setattr(model.get_submodule(parent), last, adapted)


def merge_lora(model: nn.Module) -> None:
    """Replace every adapted layer by the plain one that computes the same."""
    for name, adapted in list(lora_layers(model)):
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, adapted.merged())


def lora_layers(model: nn.Module) -> Iterator[tuple[str, LoRALinear]]:
    """Adapted layers with the names their plain layers had."""
    for name, module in model.named_modules():
        if isinstance(module, LoRALinear):
            yield name, module


def _generator(seed: int, name: str) -> torch.Generator:
    digest = hashlib.sha256(f"{seed}/{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)
