"""The loss of the language model on trained positions.

Shapes: S trained positions, V vocabulary.
"""

import torch.nn.functional as F
from torch import Tensor


def summed_cross_entropy(logits_SV: Tensor, targets_S: Tensor) -> Tensor:
    """Sum, not mean, of the cross-entropy, in float32, a scalar: the caller divides by the global count of tokens.

    With S = 0 it is 0 with a gradient of 0, so that a pack of padding still takes part in every collective.
    """
    return F.cross_entropy(logits_SV.float(), targets_S, reduction="sum")
