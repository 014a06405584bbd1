"""Every fault that the drill knows, and how one is drawn at random."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from seatrial.drill import plan
from seatrial.drill.fault import Act, Answer, Fault, Injection, Moment, On, When, Wound

_AROUND: tuple[When, ...] = ("before", "during", "after")
_SAVES = ("save.write", "save.manifest", "save.commit", "save.collect")
LEARNT_STEPS = 7
"""What keeps the interpreter's lock, or answers no more, is found by the run's own step times, which take some steps to
learn."""

TWO_SAVES = plan.SAVE_EVERY_STEPS + 1
"""The save after so many steps is the second: when it is damaged, there is one to fall back to."""


@dataclass(frozen=True)
class Kind:
    """A sort of fault and the moments that it may strike at.

    ``recovers``: the moments are those of the attempt after a first kill. ``first_step``: not before so many steps.
    """

    name: str
    family: str
    act: Act
    on: On
    moments: tuple[tuple[str, When], ...]
    answer: Answer
    nodes: int = 1
    recovers: bool = False
    wound: Wound | None = None
    first_step: int = 1


def _all_of(phases: Sequence[str], whens: Sequence[When] = _AROUND) -> tuple[tuple[str, When], ...]:
    return tuple((phase, when) for phase in phases for when in whens)


_BEGINNING = _all_of(("data", "load", "compile"), ("before", "after"))
_IN_STEP = _all_of(("step",), ("before", "during"))
_STAGE = _all_of(("save.stage",))
_END = _all_of(("export",), ("before", "during"))
_ANYWHERE = (*_BEGINNING, *_IN_STEP, *_STAGE, *_END)
_SAVING = _all_of(_SAVES)
_RECOVERING = (*_all_of(("data", "load", "compile"), ("before",)), ("restore", "before"), ("restore", "during"),
               ("step", "during"))  # fmt: skip
_SAVED: tuple[tuple[str, When], ...] = (("save.collect", "after"),)
_WRITING: tuple[tuple[str, When], ...] = (("save.write", "during"),)
_WRITES: tuple[tuple[str, When], ...] = (("save.write", "during"), ("save.manifest", "during"))

CATALOGUE: tuple[Kind, ...] = (
    Kind("SIGKILL of a rank", "process", "SIGKILL", "rank", _ANYWHERE, "killed"),
    Kind("SIGTERM to a rank", "process", "SIGTERM", "rank", _IN_STEP, "stopped"),
    Kind("SIGSTOP of a rank", "process", "SIGSTOP", "rank", _IN_STEP, "stall"),
    Kind("abort of a rank", "process", "abort", "rank", (*_IN_STEP, *_STAGE), "killed"),
    Kind("segfault of a rank", "process", "segfault", "rank", (*_IN_STEP, *_STAGE), "killed"),
    Kind("exception in a rank", "process", "exception", "rank", _ANYWHERE, "failed"),
    Kind("interpreter's lock kept", "process", "lock", "rank", _IN_STEP, "stall", first_step=LEARNT_STEPS),
    Kind("SIGKILL of torchrun", "process", "SIGKILL", "agent", _ANYWHERE, "agent"),
    Kind("SIGTERM to torchrun", "process", "SIGTERM", "agent", _IN_STEP, "stopped"),
    Kind("SIGSTOP of torchrun", "process", "SIGSTOP", "agent", _IN_STEP, "unharmed"),
    Kind("loss of the node", "process", "SIGKILL", "node", _ANYWHERE, "none"),
    Kind("loss of one of two nodes", "process", "SIGKILL", "node", _IN_STEP, "node", nodes=2),
    Kind("SIGKILL of a rank in a save", "save", "SIGKILL", "rank", _SAVING, "killed"),
    Kind("SIGKILL of torchrun in a save", "save", "SIGKILL", "agent", _SAVING, "agent"),
    Kind("loss of the node in a save", "save", "SIGKILL", "node", _SAVING, "none"),
    Kind("SIGKILL of the writer", "save", "SIGKILL", "writer", _SAVING, "save failed"),
    Kind("SIGSTOP of the writer", "save", "SIGSTOP", "writer", _WRITING, "save failed"),
    Kind("SIGKILL of a rank that recovers", "recovery", "SIGKILL", "rank", _RECOVERING, "killed", recovers=True),
    Kind("loss of the node that recovers", "recovery", "SIGKILL", "node", _RECOVERING, "none", recovers=True),
    Kind("SIGSTOP of a rank that recovers", "recovery", "SIGSTOP", "rank", _RECOVERING, "stall", recovers=True),
    Kind("full disk", "storage", "ENOSPC", "writer", _WRITES, "save failed"),
    Kind("disk error", "storage", "EIO", "writer", _WRITES, "save failed"),
    Kind("read-only disk", "storage", "EROFS", "writer", _all_of(_SAVES[:3], ("before",)), "save failed"),
    Kind("slow disk", "storage", "slow", "writer", _WRITES, "unharmed"),
    Kind("bit flip", "disk", "SIGKILL", "node", _SAVED, "corrupt", wound="bit flip", first_step=TWO_SAVES),
    Kind("truncation", "disk", "SIGKILL", "node", _SAVED, "corrupt", wound="truncation", first_step=TWO_SAVES),
    Kind("zero hole", "disk", "SIGKILL", "node", _SAVED, "corrupt", wound="zero hole", first_step=TWO_SAVES),
    Kind("missing shard", "disk", "SIGKILL", "node", _SAVED, "corrupt", wound="missing shard", first_step=TWO_SAVES),
    Kind("missing manifest", "disk", "SIGKILL", "node", _SAVED, "corrupt", wound="missing manifest",
         first_step=TWO_SAVES),
    Kind("bad row", "data", "SIGKILL", "node", _IN_STEP, "refused", wound="bad row"),
    Kind("NaN on one rank", "numbers", "nan", "rank", (("step", "during"),), "skip"),
    Kind("worlds 4, 2, 3, 4", "size", "SIGTERM", "agent", (("step", "before"),), "stopped"),
    Kind("network cut between nodes", "network", "cut", "rank", _IN_STEP, "link", nodes=2),
    Kind("power cut to one of two nodes", "network", "power", "node", (*_IN_STEP, *_SAVING), "node", nodes=2,
         first_step=LEARNT_STEPS),
)  # fmt: skip


def sweep(count: int, *, seed: int, worlds: Sequence[int], steps: int, kinds: Sequence[Kind]) -> list[Fault]:
    """``count`` faults from ``seed``: every kind once, in a random order, before any comes again."""
    rng = random.Random(seed)
    drawn: list[Kind] = []
    while len(drawn) < count:
        drawn += rng.sample(list(kinds), len(kinds))
    return [draw(kind, rng, worlds=worlds, steps=steps) for kind in drawn[:count]]


def draw(kind: Kind, rng: random.Random, *, worlds: Sequence[int], steps: int) -> Fault:
    """One fault of a kind: its moment, its rank, and the sizes that the training goes through."""
    if kind.family == "size":
        return chain(steps)
    sizes = tuple(rng.choice(worlds) for _ in range(4))
    if kind.nodes > 1:
        sizes = (max(2, sizes[0] // 2 * 2), *sizes[1:])
    restarts = 2 if kind.on == "rank" and kind.nodes == 1 and kind.wound is None and rng.random() < 0.5 else 0
    phase, when = rng.choice(kind.moments)
    # A node that loses power in the last save is waited for until it has been silent for minutes.
    last = kind.first_step if kind.act == "power" and phase.startswith("save") else steps - 1
    step = rng.randint(kind.first_step, last) if phase.startswith(("step", "save")) else 0
    killed: tuple[Injection, ...] = ()
    at = 0
    if kind.recovers:
        first = Moment(phase="step", when="during", step=rng.randint(4, steps - 3))
        lost = rng.randrange(sizes[0])
        if phase == "restore":  # there is something to restore
            first, lost = Moment(phase="save.collect", when="after", step=1), 0
        killed, at = (Injection(act="SIGKILL", on="rank", rank=lost, moment=first),), 1
        step = first.step if phase == "step" else 0
    # The first rank alone writes manifests, commits and collects.
    alone = phase in ("save.manifest", "save.commit", "save.collect") or (phase, when) == ("export", "during")
    rank = 0 if alone else rng.randrange(sizes[0 if restarts else at])
    if kind.nodes > 1 and kind.act != "power":
        rank = sizes[0] - 1  # of the second node: the first one holds the ranks' meeting point
    struck = Injection(act=kind.act, on=kind.on, rank=rank, moment=Moment(phase=phase, when=when, step=step))
    return Fault(
        name=kind.name,
        family=kind.family,
        injections=(*killed, struck),
        answer=kind.answer,
        worlds=sizes,
        restarts=restarts,
        nodes=kind.nodes,
        wound=kind.wound,
    )


def chain(steps: int) -> Fault:
    """A training that is stopped three times and goes on at other sizes."""
    moments = [Moment(phase="step", when="before", step=steps * quarter // 4) for quarter in (1, 2, 3)]
    return Fault(
        name="worlds 4, 2, 3, 4",
        family="size",
        injections=tuple(Injection(act="SIGTERM", on="agent", rank=0, moment=moment) for moment in moments),
        answer="stopped",
        worlds=(4, 2, 3, 4),
    )
