"""Gives orders to the ranks of all nodes and gathers their answers. A node that does not answer is never waited for."""

from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from seatrial.accept.blame.bisect import Group
from seatrial.accept.blame.bouts import Bouts, Floats, PortCounters
from seatrial.accept.blame.plan import Pair, Round
from seatrial.accept.busbw import Collective
from seatrial.accept.checks.ranks import StepFacts
from seatrial.accept.cluster.board import Board
from seatrial.accept.nccl_log import NcclChoice, joined
from seatrial.accept.training.rate import Workload
from seatrial.records import JsonObject

BOUT_SECONDS = 10.0
"""In which a pair makes its process group and plays: a healthy one takes a tenth of it."""
GRACE_SECONDS = 15.0
"""Beyond that: until an error has come back, or a rank that was started anew is there."""
PATIENCE = 2
"""Orders that a node may leave unanswered before nobody waits for it any more."""


@dataclass
class RankCluster:
    """The nodes that take part, seen by index; ``members`` gives their numbers on the board.

    ``dead`` says that a node is not worth waiting for; ``mind`` is called while we wait, for ranks that are our own.
    ``unanswered`` counts orders that ranks left without an answer, ``errors`` keeps what they said, ``wrong`` counts
    elements that were not exact, by pair, and ``chosen`` is what NCCL chose on each node for the last collectives.
    """

    board: Board
    members: Sequence[int]
    ranks_a_node: int
    has_gpus: bool
    dead: Callable[[int], bool] = lambda node: False
    mind: Callable[[], None] = lambda: None
    bout_seconds: float = BOUT_SECONDS
    grace_seconds: float = GRACE_SECONDS
    unanswered: Counter[int] = field(default_factory=Counter)
    errors: defaultdict[int, list[str]] = field(default_factory=lambda: defaultdict(list))
    wrong: Counter[Pair] = field(default_factory=Counter)
    played: Counter[Pair] = field(default_factory=Counter)
    chosen: dict[int, NcclChoice] = field(default_factory=dict)
    _orders: int = 0

    @property
    def nodes(self) -> int:
        return len(self.members)

    @property
    def gpus(self) -> int:
        return self.ranks_a_node if self.has_gpus else 0

    @property
    def rails(self) -> int:
        return self.ranks_a_node

    def play(self, turn: int, round_: Round, repeats: int) -> Bouts:
        pairs = [[self.members[a], self.members[b]] for a, b in round_]
        answers = self._order(
            {"kind": "bout", "pairs": pairs, "repeats": repeats, "seconds": self.bout_seconds},
            sorted({node for pair in round_ for node in pair}),
        )
        rate_PLR = np.full((len(round_), self.rails, repeats), np.nan)
        for index, (a, b) in enumerate(round_):
            self.played[a, b] += 1
            for rail in range(self.rails):
                both = [answers.get((node, rail), {}) for node in (a, b)]
                self.wrong[a, b] += sum(answer.get("wrong", 0) for answer in both)
                if all("rates" in answer for answer in both):
                    rate_PLR[index, rail] = np.minimum(both[0]["rates"], both[1]["rates"])
        return Bouts.of_round(turn, round_, rate_PLR)

    def compute(self, repeats: int) -> Floats:
        answers = self._order({"kind": "compute", "repeats": repeats, "seconds": 60.0}, range(self.nodes))
        rate_NGR = np.full((self.nodes, self.gpus, repeats), np.nan)
        for (node, local), answer in answers.items():
            rate_NGR[node, local] = answer.get("rates", np.nan)
        return rate_NGR

    def loopback(self, repeats: int) -> Floats:
        """Not measured: one process cannot tell NCCL to leave by one port and come back by the same."""
        return np.full((self.nodes, self.rails, repeats), np.nan)

    def counters(self) -> PortCounters:
        """Those of ports are read by each node before and after, and judged there."""
        none_NL = np.zeros((self.nodes, self.rails), dtype=np.int64)
        return PortCounters(none_NL, none_NL)

    def collectives(
        self, groups: Sequence[Group], steps: Sequence[tuple[Collective, int]], sampling_seconds: float
    ) -> dict[Group, tuple[StepFacts, ...]]:
        """The same steps in every group, all groups at once; a group that failed is left out."""
        order = {
            "kind": "collectives",
            "groups": [[self.members[node] for node in group] for group in groups],
            "steps": list(steps),
            "sampling_seconds": sampling_seconds,
            "local_size": self.ranks_a_node,
            "seconds": 30.0 + 4 * sampling_seconds,
        }
        answers = self._order(order, sorted({node for group in groups for node in group}))
        self.chosen = {
            node: joined([NcclChoice.model_validate(found[n, local]["choice"]) for n, local in found if n == node])
            for node in {node for group in groups for node in group}
            if (found := {place: told for place, told in answers.items() if place[0] == node and "choice" in told})
        }
        return {
            group: tuple(StepFacts.model_validate(step) for step in answers[group[0], 0]["steps"])
            for group in groups
            if "steps" in answers.get((group[0], 0), {})
        }

    def train(self, group: Group, workload: Workload, seconds: float) -> JsonObject | None:
        """Steps over all ranks of these nodes (:func:`seatrial.accept.training.rate.timed`); None when that failed."""
        order = {
            "kind": "training",
            "nodes": [self.members[node] for node in group],
            "workload": workload.model_dump(mode="json"),
            "local_size": self.ranks_a_node,
            "seconds": seconds,
        }
        told = self._order(order, group).get((group[0], 0), {})
        return told if "seconds" in told else None

    def end(self) -> None:
        self.board.post(f"order/{self._orders}", {"kind": "end"})

    def _order(self, order: JsonObject, nodes: Sequence[int] | range) -> dict[tuple[int, int], JsonObject]:
        """Post an order and gather the answers of the ranks of these nodes, by node index and local rank."""
        number = self._orders
        self._orders += 1
        self.board.post("orders", self._orders)
        self.board.post(f"order/{number}", order)
        names = {
            f"done/{number}/{self.members[node]}/{local}": (node, local)
            for node in nodes
            for local in range(self.ranks_a_node)
        }

        def hopeless(name: str) -> bool:
            self.mind()
            node = names[name][0]
            return self.unanswered[node] >= PATIENCE or self.dead(self.members[node])

        found = self.board.gather(names, order["seconds"] + self.grace_seconds, hopeless)
        answers = {names[name]: answer for name, answer in found.items()}
        for place in names.values():
            if place not in answers:
                self.unanswered[place[0]] += 1
            elif "error" in answers[place]:
                self.errors[place[0]].append(answers[place]["error"])
        return answers


def wrong_nodes(wrong: Counter[Pair], played: Counter[Pair]) -> list[int]:
    """Nodes with which most partners got wrong results. Pure.

    A sound node is wrong only with a faulty one, so among more than two nodes that is the lesser part of its pairs.
    """
    pairs: defaultdict[int, list[bool]] = defaultdict(list)
    for pair in played:
        for node in pair:
            pairs[node].append(wrong[pair] > 0)
    return sorted(node for node, found in pairs.items() if sum(found) * 2 > len(found))
