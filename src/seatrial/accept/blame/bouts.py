"""What was measured when nodes played each other, and what every node measured by itself. Arrays, by index of node.

Legend: N nodes, G GPUs of a node, L rails (network ports) of a node, R repeats, M single measurements. Rates are GB/s
between nodes; what GPUs compute is in any unit that is the same for all. NaN stands for a measurement that failed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from seatrial.accept.blame.plan import Round

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Bouts:
    """M measurements: ``turn`` counts rounds, and a pair plays each rail once or more in a round."""

    turn_M: Ints
    a_M: Ints
    b_M: Ints
    rail_M: Ints
    rate_M: Floats

    @classmethod
    def none(cls) -> Self:
        empty = np.empty(0, dtype=np.int64)
        return cls(empty, empty, empty, empty, np.empty(0))

    @classmethod
    def of_round(cls, turn: int, round_: Round, rate_PLR: Floats) -> Self:
        """``rate_PLR``: by pair of the round, rail and repeat."""
        pairs, rails, repeats = rate_PLR.shape
        a_P, b_P = np.asarray(round_, dtype=np.int64).reshape(pairs, 2).T
        each = rails * repeats
        return cls(
            turn_M=np.full(pairs * each, turn),
            a_M=np.repeat(a_P, each),
            b_M=np.repeat(b_P, each),
            rail_M=np.tile(np.repeat(np.arange(rails), repeats), pairs),
            rate_M=rate_PLR.reshape(-1),
        )

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        if not parts:
            return cls.none()
        return cls(
            turn_M=np.concatenate([part.turn_M for part in parts]),
            a_M=np.concatenate([part.a_M for part in parts]),
            b_M=np.concatenate([part.b_M for part in parts]),
            rail_M=np.concatenate([part.rail_M for part in parts]),
            rate_M=np.concatenate([part.rate_M for part in parts]),
        )

    def where(self, chosen_M: NDArray[np.bool_]) -> "Bouts":
        return Bouts(
            self.turn_M[chosen_M], self.a_M[chosen_M], self.b_M[chosen_M], self.rail_M[chosen_M], self.rate_M[chosen_M]
        )


@dataclass(frozen=True)
class PortCounters:
    """Errors that the ports of each node counted since the start: bits that arrived wrong, links that went down."""

    symbol_errors_NL: Ints
    link_downs_NL: Ints


class Cluster(Protocol):
    """Nodes that can be measured: real ones, or simulated ones."""

    @property
    def nodes(self) -> int: ...

    @property
    def gpus(self) -> int: ...

    @property
    def rails(self) -> int: ...

    def play(self, turn: int, round_: Round, repeats: int) -> Bouts:
        """Every pair exchanges data on every rail, all at once."""

    def compute(self, repeats: int) -> Floats:
        """rate_NGR: what every GPU computes in a second, all at once."""

    def loopback(self, repeats: int) -> Floats:
        """rate_NLR: what every port carries to itself, without its cable; NaN where that cannot be measured."""

    def counters(self) -> PortCounters: ...
