"""Which tensor was the first that was not finite, in a step that went wrong.

The step's packs are run again, from the very weights that it began with, outside compiled code, with every module and
gradient watched. Slow, and seldom needed.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from seatrial.data.pack import Pack, Rows
from seatrial.dist.gathered import before_backward, take_weights
from seatrial.model.packed import pack_input
from seatrial.train.step import Training, pack_loss


def first_non_finite(training: Training, packs: Iterable[tuple[int, Rows, Pack]]) -> str:
    """One line: which tensor, on which rank, in which pack and rows. Collective; all ranks get the same line.

    Args:
        packs: this rank's packs of the step: position in the global stream, rows, tensors.
    """
    found = [""] * training.world.size
    dist.all_gather_object(found, _on_this_rank(training, packs))
    named = [f"{what}, on rank {rank}" for rank, what in enumerate(found) if what]
    if not named:
        return (
            "every tensor was finite when the step was run again outside compiled code: the number came of compiled "
            "code, of a sum over ranks, of a fault that does not repeat, or was too large for an exact sum (run.exact)"
        )
    return f"first not finite: {named[0]}" + (f" (and on {len(named) - 1} more ranks)" if len(named) > 1 else "")


def _on_this_rank(training: Training, packs: Iterable[tuple[int, Rows, Pack]]) -> str:
    model = training.model
    broken = [name for name, parameter in model.named_parameters() if not is_finite(parameter)]
    if broken:
        # The passes still run: with a sharded model they hold collectives that other ranks wait in.
        said = f"weight {broken[0]}, before the step" + (f" ({len(broken)} weights in all)" if len(broken) > 1 else "")
    else:
        said = ""
    mine = list(packs)
    with torch.compiler.set_stance("force_eager"):
        if training.gathered:
            take_weights(training.packed)
        for index, (position, rows, pack) in enumerate(mine):
            if training.gathered:
                before_backward(training.packed, last=index + 1 == len(mine))
            if training.masks is not None:
                training.masks.draw(position)
            with _watched(model) as seen:
                loss = pack_loss(training.packed, pack_input(pack, training.world.device), training.compute)
                if not is_finite(loss):
                    seen.append("the loss")
                loss.backward()
            if seen and not said:
                said = f"{seen[0]}, in pack {position} (rows {list(rows)})"
    training.optimizer.zero_grad(set_to_none=True)
    return said


def is_finite(tensor: Tensor) -> bool:
    """Whether every number is; of a sharded tensor, those held here. Integers and packed formats always are."""
    held = tensor.detach()
    held = held.to_local() if isinstance(held, DTensor) else held
    if not held.is_floating_point():
        return True
    return bool(torch.isfinite(held.float() if held.element_size() == 1 else held).all())


class _watched(ExitStack):  # noqa: N801
    """Collects, in the order of computation, what was not finite."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self._seen: list[str] = []
        for name, module in model.named_modules():
            for handle in self._watch(name or "the model", module):
                self.callback(handle.remove)
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                hook = parameter.register_hook(self._checker(f"gradient of {name}"))
                self.callback(hook.remove)

    def __enter__(self) -> list[str]:  # type: ignore[override]
        return self._seen

    def _watch(self, name: str, module: nn.Module) -> Iterator[Any]:
        def before(_module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            self._look([*args, *kwargs.values()], f"input of {name}")

        def after(_module: nn.Module, _args: tuple[Any, ...], output: Any) -> None:
            self._look(output if isinstance(output, tuple | list) else [output], f"output of {name}")

        yield module.register_forward_pre_hook(before, with_kwargs=True)
        yield module.register_forward_hook(after)

    def _look(self, values: Sequence[Any], what: str) -> None:
        for tensor in values:
            if isinstance(tensor, Tensor):
                if not is_finite(tensor):
                    self._seen.append(what)
                if tensor.requires_grad:
                    tensor.register_hook(self._checker(f"gradient of the {what}"))

    def _checker(self, what: str) -> Any:
        def check(gradient: Tensor) -> None:
            if not is_finite(gradient):
                self._seen.append(what)

        return check
