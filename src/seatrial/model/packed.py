"""A language model that takes a pack and gives its loss: the one module that is trained.

Shapes: B = 1, T tokens of a pack, S trained positions among them, E hidden width.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PreTrainedModel

from seatrial.data.pack import IGNORED, Pack
from seatrial.model.loss import CHUNK, summed_cross_entropy


@dataclass(frozen=True, eq=False)
class PackInput:
    """A pack on the model's device. ``longest`` and the number of documents are rounded up to powers of two.

    Rounding keeps the shapes few, so that compiled code and attention plans are made once and used for every pack;
    ``targets_S`` is rounded up to whole chunks of the loss with positions that count nothing.
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
    if device.type == "cuda":
        missing = -len(targets_S) % CHUNK
        trained_at_S, targets_S = F.pad(trained_at_S, (0, missing)), F.pad(targets_S, (0, missing), value=IGNORED)
        documents = len(pack.cu_seqlens) - 1
        cu_seqlens = F.pad(pack.cu_seqlens, (0, _power_of_two(documents) - documents), value=int(pack.cu_seqlens[-1]))
    else:
        cu_seqlens = pack.cu_seqlens
    longest = min(_power_of_two(pack.max_seqlen), len(pack.ids_T))
    return PackInput(
        ids_T=_to(device, pack.ids_T),
        positions_T=_to(device, pack.positions_T),
        cu_seqlens=_to(device, cu_seqlens),
        longest=longest,
        trained_at_S=_to(device, trained_at_S),
        targets_S=_to(device, targets_S),
    )


def _to(device: torch.device, tensor: Tensor) -> Tensor:
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor


class PackLoss(nn.Module):
    """Hugging Face's decoder and head with the loss at the end, so that the head sees trained positions only."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, pack: PackInput) -> Tensor:
        """Summed cross-entropy of one pack, float32, a scalar."""
        hidden_BTE = self.model.get_decoder()(
            input_ids=pack.ids_T.unsqueeze(0),
            position_ids=pack.positions_T.unsqueeze(0),
            use_cache=False,
            cu_seq_lens_q=pack.cu_seqlens,
            max_length_q=pack.longest,
        ).last_hidden_state
        hidden_SE = hidden_BTE[0].index_select(0, pack.trained_at_S)
        head = self.model.get_output_embeddings()
        assert isinstance(head, nn.Linear) and head.bias is None, "the head of this model is no plain matrix"
        return summed_cross_entropy(hidden_SE, head.weight, pack.targets_S)


def decoder_blocks(model: PreTrainedModel) -> Sequence[nn.Module]:
    """The repeated blocks of a Hugging Face decoder."""
    blocks = getattr(model.get_decoder(), "layers", None)
    assert isinstance(blocks, nn.ModuleList), f"{type(model).__name__}: no list of decoder blocks called 'layers'"
    return list(blocks)


def compile_blocks(model: PreTrainedModel) -> None:
    """Compile each decoder block and the last norm: the blocks share one piece of code, so one compilation."""
    for block in decoder_blocks(model):
        block.compile()
    norm = getattr(model.get_decoder(), "norm", None)
    if isinstance(norm, nn.Module):
        norm.compile()


def _power_of_two(count: int) -> int:
    return 1 << (count - 1).bit_length()
