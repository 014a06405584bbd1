"""Exact training: which promise about bits a run can keep, and the switches that keep it.

Three things decide the bits of a weight: the kernels (most sum in an order that differs from call to call), the order
in which gradients of packs and processes are summed, and what is random. The last is a function of seed and place in
the data everywhere. Repeatable kernels make a run the same again on as many GPUs; gradients summed in whole numbers
(:mod:`seatrial.dist.fixed_point`) make it the same on any number.
"""

import os
from dataclasses import dataclass

import torch
import torch._inductor.config
import torch.utils.deterministic

from seatrial.settings import TrainSettings

CHEAP_UP_TO_TOKENS = 2048
"""Longest row for which repeatable kernels cost under 1 % of a step: the backward pass of attention is what they slow,
by 12 to 24 %, and attention's share of a step grows with the rows (results/attention_h100_2026-11-21.md)."""


@dataclass(frozen=True)
class Exactness:
    """``repeatable``: kernels whose results do not change between calls. ``order_free``: gradients in fixed point."""

    repeatable: bool
    order_free: bool
    why: str

    @property
    def promise(self) -> str:
        if not self.repeatable:
            return "none"
        return "same bits on any number of GPUs" if self.order_free else "same bits on as many GPUs"


def choose_exactness(settings: TrainSettings, longest_row: int) -> Exactness:
    """What ``run.exact`` means for this training; ``longest_row`` in tokens, of the whole data set.

    Adapters are summed in fixed point. Gradients of a whole model are not: they are sharded, and 64-bit sums would take
    twice their memory and traffic.
    """
    adapters = settings.lora is not None
    match settings.run.exact:
        case "on":
            return Exactness(True, adapters, "asked for")
        case "off":
            return Exactness(False, False, "asked for")
        case _ if longest_row <= CHEAP_UP_TO_TOKENS:
            return Exactness(True, adapters, f"cheap for rows of up to {CHEAP_UP_TO_TOKENS} tokens")
        case _:
            return Exactness(False, False, f"rows of {longest_row} tokens: would cost more than 1 %; run.exact: on")


def use_kernels(exactness: Exactness) -> None:
    """Choose repeatable or the fastest kernels for this process. Call before anything is multiplied or compiled."""
    if exactness.repeatable:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read at cuBLAS's first product
    # Not `warn_only`: torch's flash attention would then only warn, and stay as it is.
    torch.use_deterministic_algorithms(exactness.repeatable)
    # Everything that we leave uninitialised is written before it is read; filling it first costs memory traffic.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    # Inductor may otherwise time several kernels and keep the fastest of that moment.
    if hasattr(torch._inductor.config, "deterministic"):
        torch._inductor.config.deterministic = exactness.repeatable
