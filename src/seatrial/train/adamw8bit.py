"""AdamW whose moments are kept in 8 bits, in blocks of 256 (arXiv 2110.02861): 2 bytes a parameter instead of 8.

The update is bitsandbytes' kernel. Its own optimizer class waits for the device after every parameter, counts steps
in a plain integer that no checkpoint sees, and needs a state dictionary of its own; this one has its state in tensors.
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from seatrial.model.nf4 import require_bitsandbytes

BLOCK = 256
PAGED_FROM = 100_000
"""Parameters from which moments are paged: below, a page of the driver holds more than one tensor."""


class AdamW8bit(torch.optim.Optimizer):
    """On a GPU the moments live in unified memory: where activations need the room, the driver moves them out.

    State of a parameter of n numbers: ``step`` (0-d, CPU), ``exp_avg`` and ``exp_avg_sq`` (n codes, uint8) and
    ``exp_avg_scales`` and ``exp_avg_sq_scales`` (a float32 number for each block).

    Raises:
        UsageError: bitsandbytes is not installed.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        weight_decay: float,
    ) -> None:
        require_bitsandbytes("optimizer.kind: adamw8bit")
        from bitsandbytes.functional import create_dynamic_map

        super().__init__(parameters, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        device = self.param_groups[0]["params"][0].device
        self._codes = tuple(create_dynamic_map(signed=signed).to(device) for signed in (True, False))
        for group in self.param_groups:
            for parameter in group["params"]:
                blocks = -(-parameter.numel() // BLOCK)
                self.state[parameter] = {
                    "step": torch.zeros((), dtype=torch.int64),
                    "exp_avg": _moment(parameter),
                    "exp_avg_sq": _moment(parameter),
                    "exp_avg_scales": torch.zeros(blocks, device=parameter.device),
                    "exp_avg_sq_scales": torch.zeros(blocks, device=parameter.device),
                }

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient; does not wait for the device."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                state["step"] += 1
                torch.ops.bitsandbytes.optimizer_update_8bit_blockwise(
                    "adam",
                    parameter.grad.contiguous(),
                    parameter,
                    state["exp_avg"],
                    state["exp_avg_sq"],
                    *group["betas"],
                    0.0,  # two numbers that only other methods use
                    0.0,
                    group["eps"],
                    int(state["step"]),
                    group["lr"],
                    *self._codes,
                    state["exp_avg_scales"],
                    state["exp_avg_sq_scales"],
                    group["weight_decay"],
                    1.0,  # gradients are clipped before
                )


def _moment(parameter: nn.Parameter) -> Tensor:
    """Codes of all zeros (their scales are zero), in unified memory on a GPU: torch takes that for a CPU tensor."""
    if not parameter.is_cuda or parameter.numel() < PAGED_FROM:
        return torch.zeros(parameter.shape, dtype=torch.uint8, device=parameter.device)
    from bitsandbytes.functional import get_paged

    paged: Tensor = get_paged(*parameter.shape, dtype=torch.uint8, device=parameter.device)
    return paged.zero_()
