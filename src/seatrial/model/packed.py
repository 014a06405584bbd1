"""A language model that takes a pack and gives its loss: the one module that is trained.

Shapes: B = 1, T tokens of a pack, S trained positions among them, E hidden width.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
import torch._dynamo
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from transformers import PreTrainedModel

from seatrial.data.pack import IGNORED, Pack
from seatrial.errors import UsageError
from seatrial.model.loss import POSITIONS_MULTIPLE, QuantisedHead, quantise_head, summed_cross_entropy
from seatrial.model.mlp import AdaptedMLP

Checkpointing = Literal["none", "selective", "full"]
"""Which activations are computed again in the backward pass: nothing, the MLP's wide ones, all but a block's input."""


@dataclass(frozen=True, eq=False)
class PackInput:
    """A pack on the model's device. On a GPU its shapes are rounded up, so that kernels meet few of them in a training.

    ``longest``: tokens of the longest document, or more (:func:`attention_bounds`). The last documents may be empty.
    On a GPU ``targets_S`` has positions at its end that count nothing, to a multiple of what products like.
    """

    ids_T: Tensor
    positions_T: Tensor
    cu_seqlens: Tensor
    longest: int
    trained_at_S: Tensor
    targets_S: Tensor


def pack_input(pack: Pack, device: torch.device) -> PackInput:
    """Choose the trained positions and copy all that the model needs, without waiting for the device."""
    trained_at_S = (pack.targets_T != IGNORED).nonzero().squeeze(1)
    targets_S = pack.targets_T[trained_at_S]
    documents, tokens = len(pack.cu_seqlens) - 1, len(pack.ids_T)
    rounded, longest = attention_bounds(documents, pack.max_seqlen, tokens)
    cu_seqlens = pack.cu_seqlens
    if device.type != "cpu":
        missing = -len(targets_S) % POSITIONS_MULTIPLE
        trained_at_S, targets_S = F.pad(trained_at_S, (0, missing)), F.pad(targets_S, (0, missing), value=IGNORED)
        cu_seqlens = F.pad(cu_seqlens, (0, rounded - documents), value=tokens)
    cu_seqlens = _to(device, cu_seqlens)
    torch._dynamo.maybe_mark_dynamic(cu_seqlens, 0)
    return PackInput(
        ids_T=_to(device, pack.ids_T),
        positions_T=_to(device, pack.positions_T),
        cu_seqlens=cu_seqlens,
        longest=longest,
        trained_at_S=_to(device, trained_at_S),
        targets_S=_to(device, targets_S),
    )


def attention_bounds(documents: int, longest: int, tokens: int) -> tuple[int, int]:
    """What attention is told of a pack of so many ``tokens``: documents and longest document, to powers of two."""
    return _power_of_two(documents), min(_power_of_two(longest), tokens)


def _to(device: torch.device, tensor: Tensor) -> Tensor:
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)


class PackLoss(nn.Module):
    """Hugging Face's decoder and head with the loss at the end, so that the head sees trained positions only.

    Raises:
        UsageError: the model is built in another way than we know.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        decoder_blocks(model)
        head = model.get_output_embeddings()
        bias: Tensor | None = getattr(head, "bias", None)
        if not isinstance(head, nn.Linear) or bias is not None:
            raise UsageError(
                f"model.path: {type(model).__name__}: looked for a head that is a linear layer without bias "
                f"(get_output_embeddings), found {type(head).__name__}"
            )
        self.model = model
        self.head = HeadLoss(head)

    def forward(self, pack: PackInput) -> Tensor:
        """Summed cross-entropy of one pack, float32, a scalar."""
        hidden_BTE = self.model.get_decoder()(
            input_ids=pack.ids_T.unsqueeze(0),
            position_ids=pack.positions_T.unsqueeze(0),
            use_cache=False,
            cu_seq_lens_q=pack.cu_seqlens,
            max_length_q=torch.tensor(pack.longest),  # a number of its own would be compiled for
        ).last_hidden_state
        hidden_SE = hidden_BTE[0].index_select(0, pack.trained_at_S)
        loss: Tensor = self.head(hidden_SE, pack.targets_S)
        return loss


class HeadLoss(nn.Module):
    """The head and the loss, one module: its weight is used here and nowhere else, so it can be sharded by itself."""

    def __init__(self, head: nn.Linear) -> None:
        super().__init__()
        self.head = head
        self._quantised: QuantisedHead | None = None

    def multiply_gradient_in_fp8(self) -> None:
        """From now on, as those of a frozen base in float8 are. Collective where the weight is sharded.

        The weight stays as it is; the copy in float8 is whole on every GPU, since it would take longer to make anew.
        """
        weight_VE = self.head.weight
        self._quantised = quantise_head(weight_VE.full_tensor() if isinstance(weight_VE, DTensor) else weight_VE)

    def forward(self, hidden_SE: Tensor, targets_S: Tensor) -> Tensor:
        """Summed cross-entropy, float32, a scalar."""
        return summed_cross_entropy(hidden_SE, self.head.weight, targets_S, self._quantised)


def decoder_blocks(model: PreTrainedModel) -> Sequence[nn.Module]:
    """The repeated blocks of a Hugging Face decoder.

    Raises:
        UsageError: there is no list of them where Llama, Qwen and Mistral have it.
    """
    decoder = model.get_decoder()
    blocks = getattr(decoder, "layers", None)
    if not isinstance(blocks, nn.ModuleList):
        there = ", ".join(name for name, _ in decoder.named_children()) or "no module at all"
        raise UsageError(
            f"model.path: {type(model).__name__}: looked for a list of decoder blocks called 'layers', as Llama, Qwen "
            f"and Mistral have it, and did not find it in {type(decoder).__name__}, which has {there}"
        )
    return list(blocks)


def compile_blocks(model: PreTrainedModel) -> None:
    """Compile each decoder block and the last norm: the blocks share one piece of code, so one compilation.

    What is compiled is ``forward``: hooks, those that gather a sharded block too, stay outside.
    """
    for block in decoder_blocks(model):
        _replace_forward(block, torch.compile(block.forward))
    norm = getattr(model.get_decoder(), "norm", None)
    if isinstance(norm, nn.Module):
        norm.compile()


def checkpoint_activations(model: PreTrainedModel, kind: Checkpointing) -> None:
    """Compute some activations again in the backward pass rather than keep them. Call after :func:`compile_blocks`.

    full: a block keeps its input alone, and runs a second time, outside the compiled code. selective: of the MLP only
    the product that narrows (down) is kept; the wide gate and up, and what follows them, are computed again. Those are
    57 % of a Llama block's activations for half of its forward products.

    Raises:
        UsageError: selective, and a block has no MLP under that name.
    """
    for block in decoder_blocks(model):
        if kind == "full":
            _replace_forward(block, partial(checkpoint, block.forward, use_reentrant=False))
        elif kind == "selective":
            mlp = getattr(block, "mlp", None)
            if isinstance(mlp, AdaptedMLP):
                continue  # it was told what to keep when it was made
            if not isinstance(mlp, nn.Module):
                there = ", ".join(name for name, _ in block.named_children())
                raise UsageError(
                    f"model.activation_checkpointing: selective looked for 'mlp' in {type(block).__name__} and did not "
                    f"find it among {there}; choose none or full"
                )
            kept = partial(create_selective_checkpoint_contexts, _keep_narrowing)
            _replace_forward(mlp, partial(checkpoint, mlp.forward, use_reentrant=False, context_fn=kept))
    if kind == "selective":
        # Between the members of a group, its outputs wait in an attribute of the group, which the compiler takes for
        # a side effect of the recomputed region. It begins and ends as None, so there is nothing to repeat.
        torch._dynamo.config.skip_fwd_side_effects_in_bwd_under_checkpoint = True


def _keep_narrowing(_context: Any, operator: Any, *args: Any, **_kwargs: Any) -> CheckpointPolicy:
    if operator is torch.ops.seatrial.adapted_product.default:
        x_TI, b_OR = args[0], args[6]
        if b_OR.shape[0] < x_TI.shape[1]:
            return CheckpointPolicy.MUST_SAVE
    return CheckpointPolicy.PREFER_RECOMPUTE


def _replace_forward(module: nn.Module, forward: Callable[..., Any]) -> None:
    # On the instance: hooks of the module, FSDP's too, still run once, around it.
    object.__setattr__(module, "forward", forward)


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()
