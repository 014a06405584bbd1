"""Dropout before the low-rank update (as in PEFT), with masks computed from a counter instead of a random state.

Whether a number is kept is a function of seed, layer, pack and place in the pack, of a few integer operations that
torch.compile fuses into the kernels around them. So nothing is stored for the backward pass, recomputed activations
meet the same mask, and so does a pack on any rank of any world, in whatever attempt.

Shapes: T tokens, W width, L adapted layers.
"""

import hashlib

import torch
from torch import nn

from seatrial.model.lora import adapted_layers

_WORDS = 4  # two of a key and two that keep each key on an address that vector loads can take


class DropoutMasks:
    """The masks of all adapted layers of a model: from now on each drops, by the mask of the pack last drawn.

    Layers computed together (query, key and value; gate and up) share one mask.
    """

    def __init__(self, model: nn.Module, *, seed: int, device: torch.device) -> None:
        layers = list(adapted_layers(model))
        self._seed = seed
        self._layers_L4 = torch.tensor([_words(f"{seed}/{name}") for name, _ in layers], dtype=torch.int32)
        self._keys_L4 = torch.empty_like(self._layers_L4, device=device)
        self.draw(0)
        for (_, layer), key in zip(layers, self._keys_L4, strict=True):
            layer.mask_key = key[:2]

    def draw(self, position: int) -> None:
        """Choose the masks of the pack at ``position`` of the global stream; call it before the pack's forward."""
        pack_4 = torch.tensor(_words(f"{self._seed}/pack {position}"), dtype=torch.int32)
        self._keys_L4.copy_(self._layers_L4 ^ pack_4, non_blocking=True)


def _words(text: str) -> list[int]:
    digest = hashlib.sha256(text.encode()).digest()
    return [int.from_bytes(digest[4 * i : 4 * i + 4], "little", signed=True) for i in range(_WORDS)]
