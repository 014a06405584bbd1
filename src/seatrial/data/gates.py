"""Counts of a preparation, and the floors below which it is refused.

A fine-tune dies quietly when a converter loses the calls and keeps the refusals: the loss looks fine and the model
never calls again. So each source has a least yield and a least share of assistant turns that hold a call.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from seatrial.data.convert import Outcome
from seatrial.data.reason import UNWANTED, Reason
from seatrial.records import JsonObject, Proportion


@dataclass(frozen=True)
class Floor:
    """``yield_share``: of rows read faithfully. ``call_share``: of assistant turns that have tools, those that call."""

    yield_share: float
    call_share: float


# Well below what each dataset gives (real samples: Glaive 100 % and 0.38, xLAM 100 % and 1.0; the whole of Hermes about
# 80 %), so that only a reader that does not fit falls below.
FLOORS: Mapping[str, Floor] = {
    "glaive": Floor(0.95, 0.08),
    "xlam": Floor(0.95, 0.95),
    "hermes": Floor(0.70, 0.10),
    "toolace": Floor(0.70, 0.10),
    "openai": Floor(0.80, 0.01),
    "sharegpt": Floor(0.80, 0.01),
    "unknown": Floor(0.80, 0.0),
}
# Below this a share says more about the few rows than about the reader.
ROWS_TO_JUDGE = 50


@dataclass
class Tally:
    """Running counts of one source, or of all of them."""

    rows: int = 0
    accepted: int = 0
    held_out: int = 0
    targets: int = 0
    targets_with_tools: int = 0
    targets_with_call: int = 0
    rejected: Counter[str] = field(default_factory=Counter)
    repairs: Counter[str] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """Count a row. Repairs are counted by kind, without the place."""
        self.rows += 1
        if outcome.rejection is not None:
            self.rejected[outcome.rejection.reason] += 1
            return
        self.accepted += 1
        self.held_out += outcome.held_out
        self.targets += outcome.targets
        self.targets_with_tools += outcome.targets if outcome.has_tools else 0
        self.targets_with_call += outcome.targets_with_call
        for kind in dict.fromkeys(repair.partition(":")[0] for repair in outcome.repairs):
            self.repairs[kind] += 1

    @property
    def unreadable(self) -> Counter[str]:
        """Rejections that say something about the rows, not about what was asked for."""
        return Counter({reason: n for reason, n in self.rejected.items() if Reason(reason) not in UNWANTED})

    def summary(self) -> JsonObject:
        return {
            "rows": self.rows,
            "accepted": self.accepted,
            "rejected": dict(self.rejected.most_common()),
            "held_out": self.held_out,
            "share_with_call": self.targets_with_call / self.targets if self.targets else 0.0,
            "targets": self.targets,
            "targets_with_tools": self.targets_with_tools,
            "targets_with_call": self.targets_with_call,
            "repairs": dict(self.repairs.most_common()),
        }


def complaints(
    tallies: Mapping[str, Tally], *, min_yield: float | None = None, min_call_share: float | None = None
) -> list[str]:
    """What is below its floor, one line each; empty when nothing is. The arguments take the place of the floors.

    A share is below its floor when its 95 % interval is, and the source has at least ``ROWS_TO_JUDGE`` rows.
    """
    lines = []
    for source, tally in tallies.items():
        if tally.rows < ROWS_TO_JUDGE:
            continue
        floor = FLOORS[source]
        least = floor.yield_share if min_yield is None else min_yield
        faithful = Proportion.of(tally.rows - tally.unreadable.total(), tally.rows)
        if faithful.high < least:
            reason, count = tally.unreadable.most_common(1)[0]
            lines.append(
                f"{source}: only {faithful.value:.1%} of {tally.rows} rows could be read, the floor is {least:.1%}; "
                f"most often {reason} ({count}); --min-yield {_below(faithful.value)} accepts it"
            )
        least = floor.call_share if min_call_share is None else min_call_share
        calling = Proportion.of(tally.targets_with_call, tally.targets_with_tools)
        if calling.high < least:
            lines.append(
                f"{source}: only {calling.value:.1%} of {calling.n} assistant turns with tools hold a call, the floor "
                f"is {least:.1%}: a model trained on this stops calling; --min-call-share {_below(calling.value)} "
                "accepts it"
            )
    return lines


def _below(share: float) -> str:
    """The share rounded down, to be passed back as a floor."""
    return f"{int(share * 100) / 100:.2f}"
