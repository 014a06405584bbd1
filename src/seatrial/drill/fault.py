"""What can be done to a training, and when: frozen data that is handed to the processes that it happens in."""

from pathlib import Path
from typing import Literal

from seatrial.records import Frozen

When = Literal["before", "during", "after"]

Act = Literal[
    "SIGKILL",
    "SIGTERM",
    "SIGSTOP",
    "abort",
    "segfault",
    "exception",
    "lock",
    "ENOSPC",
    "EIO",
    "EROFS",
    "slow",
    "nan",
    "cut",
    "power",
]
"""``lock`` keeps the interpreter's lock for good; ``slow`` makes a write take seconds; ``cut`` takes a link down;
``power`` takes it down and kills: no connection is closed."""

On = Literal["rank", "writer", "agent", "node"]
"""``agent`` is torchrun of the rank's node; ``node`` is it and every process under it, all killed at once."""

Wound = Literal["bit flip", "truncation", "zero hole", "missing shard", "missing manifest", "bad row"]
"""What is done to files between two attempts: to the newest checkpoint, or to a row of the training data."""

Answer = Literal[
    "killed",
    "failed",
    "stall",
    "link",
    "agent",
    "node",
    "stopped",
    "save failed",
    "corrupt",
    "skip",
    "refused",
    "unharmed",
    "none",
]
"""What the run must say of a fault. ``link``: that no rank is to blame, but a link. ``node``: that a node is gone, by
its ranks. ``unharmed``: nothing, as no attempt may be lost. ``none``: nothing, since nobody is left to say it."""


class Moment(Frozen):
    """A phase of :data:`seatrial.dist.heartbeat.PHASES`, at ``step`` steps done or the first time after that."""

    phase: str
    when: When
    step: int = 0

    def __str__(self) -> str:
        return f"{self.when} {self.phase}" + (f" at step {self.step}" if self.step else "")


class Injection(Frozen):
    """One act, once, in the process of ``rank`` that comes to the moment."""

    act: Act
    on: On
    rank: int
    moment: Moment

    def __str__(self) -> str:
        what = f"{self.on} {self.rank}" if self.on in ("rank", "writer") else f"the {self.on} of rank {self.rank}"
        return f"{self.act} of {what} {self.moment}"


class Fault(Frozen):
    """What is done to one training, and how it is restarted.

    The second of ``injections`` waits for the first, and strikes a later attempt. ``worlds``: the number of processes
    of the first start, of the second, and so on; the last one holds for all that follow. ``restarts``: how often
    torchrun may restart the ranks in place before the scheduler has to.
    """

    name: str
    family: str
    injections: tuple[Injection, ...]
    answer: Answer
    worlds: tuple[int, ...]
    restarts: int = 0
    nodes: int = 1
    wound: Wound | None = None

    @property
    def moment(self) -> str:
        """All of them in words."""
        said = "; then ".join(f"rank {i.rank} {i.moment}" for i in self.injections)
        return f"{said}; {self.wound} before the restart" if self.wound is not None else said


class Order(Frozen):
    """What a process is told: the fault, where to leave the marks of what has struck, and the run."""

    folder: Path
    run: Path
    injections: tuple[Injection, ...]

    def mark(self, number: int) -> Path:
        """The file that says that an injection has struck, and when and where."""
        return self.folder / f"fired-{number}.json"

    @property
    def witness(self) -> Path:
        """What the first rank saw of the checkpoints when it started, a line for each attempt."""
        return self.folder / "witness.jsonl"

    def due(self) -> tuple[int, Injection] | None:
        """The next injection that has not struck, if this process is of an attempt that it may strike."""
        for number, injection in enumerate(self.injections):
            if not self.mark(number).exists():
                return number, injection
        return None
