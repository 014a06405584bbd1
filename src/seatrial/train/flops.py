"""How many floating-point operations a training step needs, by what is frozen, adapted and trained on.

A product of T tokens with a matrix of N numbers takes 2NT operations. Its backward pass takes 2NT for the gradient of
the input and, only when the matrix is trained, 2NT more for the gradient of the matrix. So, for each token:

- a trained matrix costs 6 N, a frozen one 4 N. The customary 6 N for everything (arXiv 2001.08361, section 2.1)
  overstates a LoRA step of an 8B model by 45 %.
- an adapter of P = R (I + O) numbers costs 6 P.
- the head runs at trained positions only: 4 N or 6 N for each of these.
- attention inside a document of L tokens makes two products (scores, and values weighted by them) forward and four
  backward over the L^2 / 2 pairs that causality leaves: 6 x 2 x L^2 / 2 x W = 6 W L^2 in each block, with W the width
  of all query heads. Documents of a pack do not see each other: the sum goes over documents, not over the pack.

An embedding is looked up and multiplies nothing. Norms, rotary embedding and activation functions, what is computed
again to save memory, and padding are no model FLOPs: they count as time, not as work.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from seatrial.dist.plan import Shape

_FROZEN, _TRAINED = 4, 6


@dataclass(frozen=True)
class Work:
    """What the tokens of some packs are: ``squares`` is the sum of L^2 over documents of L tokens."""

    tokens: int
    trained_tokens: int
    squares: int


@dataclass(frozen=True)
class FlopCost:
    """FLOP of a step: ``base`` and ``adapters`` a token, ``head`` a trained token, ``attention`` a squared length.

    ``base`` stands alone because it is what a base in fp8 multiplies in fp8; all the rest is done in bf16.
    """

    base: int
    adapters: int
    head: int
    attention: int

    def base_flop(self, work: Work) -> int:
        return self.base * work.tokens

    def other_flop(self, work: Work) -> int:
        return self.adapters * work.tokens + self.head * work.trained_tokens + self.attention * work.squares

    def flop(self, work: Work) -> int:
        return self.base_flop(work) + self.other_flop(work)

    def ideal_seconds(self, work: Work, ceilings: Mapping[str, float], base_format: str) -> float:
        """On one GPU at its ceilings (TFLOP/s by format)."""
        return (self.base_flop(work) / ceilings[base_format] + self.other_flop(work) / ceilings["bf16"]) / 1e12


def flop_cost(shape: Shape, *, rank: int, targets: tuple[str, ...]) -> FlopCost:
    """Cost of a decoder of ``shape`` with adapters of ``rank`` on ``targets``; rank 0 trains every parameter."""
    numbers = sum(out * into for out, into in shape.products.values())
    adapters = sum(rank * (out + into) for name, (out, into) in shape.products.items() if name in targets)
    each = _FROZEN if rank else _TRAINED
    return FlopCost(
        base=each * numbers * shape.blocks,
        adapters=_TRAINED * adapters * shape.blocks,
        head=each * shape.end,
        attention=6 * shape.query * shape.blocks,
    )
