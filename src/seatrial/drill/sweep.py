"""A whole drill: the undisturbed training, then one broken training after another, and what became of each."""

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from seatrial.drill import plan
from seatrial.drill.catalogue import CATALOGUE, Kind, sweep
from seatrial.drill.fault import Fault
from seatrial.drill.judge import Expected, Judged, inconclusive, judge, productive_seconds
from seatrial.drill.network import CUTTING, can_cut
from seatrial.drill.torchrun import forks_can_use_gpus, import_everything
from seatrial.drill.trial import NO_EVIDENCE, Evidence, Site, run_trial
from seatrial.errors import Preempted, SeatrialError, UsageError
from seatrial.hardware import gpu_names
from seatrial.lock import locked
from seatrial.provenance import provenance
from seatrial.records import JsonObject, Verdict, final_verdict, write_json
from seatrial.settings import TrainSettings

ETTR = (
    "effective training time ratio: seconds of the steps whose result was kept, each counted once, over seconds from "
    "the first start to the end of the training, summed over all broken trainings"
)
WARM_SECONDS = 90.0
COLD_SECONDS = 420.0
"""What one start may take before the scheduler ends it."""

CPU_TIMEOUT_SECONDS, GPU_TIMEOUT_SECONDS = 12, 40
"""For another rank. NCCL and the first use of a GPU take seconds, differently many on each."""

_MARK = "drill.json"
_SAME_ANYWHERE = "same bits on any number of GPUs"
_SAME_SIZE = "same bits on as many GPUs"


@dataclass(frozen=True)
class Drill:
    """What is asked for. ``only``: families or parts of names; ``budget_seconds``: no trial begins after it."""

    out: Path
    settings: TrainSettings | None
    faults: int
    seed: int
    worlds: tuple[int, ...]
    only: tuple[str, ...] = ()
    budget_seconds: float | None = None


def run_drill(drill: Drill, say: Callable[[str], None], keep: Callable[[JsonObject], None]) -> JsonObject:
    """The result as it goes into ``--json``; the directories of trainings that came through are removed.

    Args:
        keep: is given the result so far after every training, so that of a drill that is stopped as much is left.

    Raises:
        UsageError: ``only`` names nothing, or another drill has the directory.
        Preempted: asked to stop; no process of it is left.
        SeatrialError: the undisturbed training does not come to its end.
    """
    gpus = _usable_gpus()
    kinds = chosen(drill.only, gpus=gpus)
    with _held(drill.out):
        return _run_drill(drill, kinds, gpus, say, keep)


def _run_drill(
    drill: Drill, kinds: Sequence[Kind], gpus: int, say: Callable[[str], None], keep: Callable[[JsonObject], None]
) -> JsonObject:
    began = time.monotonic()
    about: JsonObject = {
        "seed": drill.seed,
        "world": list(drill.worlds),
        "skipped": [why for kind in CATALOGUE if (why := impossible(kind, gpus=gpus))],
        "provenance": provenance(),
    }
    site = _site(drill, gpus)
    settings = site.settings
    undisturbed = _undisturbed(site, drill.worlds[0])
    promise = next(e["promise"] for e in undisturbed.events if e["event"] == "exact")
    say(f"undisturbed in {_seconds(undisturbed):.1f} s, {promise}, sha256 {str(undisturbed.sha256)[:12]}")

    expected = Expected(
        sha256=undisturbed.sha256 if promise in (_SAME_ANYWHERE, _SAME_SIZE) else None,
        steps=settings.optimizer.steps or 0,
        packs_per_step=settings.optimizer.packs_per_step,
        save_every_steps=settings.checkpoint.every_steps or 0,
        timeout_seconds=settings.run.timeout_seconds,
    )
    worlds = drill.worlds if promise == _SAME_ANYWHERE else drill.worlds[:1]
    faults = sweep(drill.faults, seed=drill.seed, worlds=worlds, steps=expected.steps, kinds=kinds)
    lines: list[JsonObject] = []
    references: dict[str, str | None] = {}
    for number, fault in enumerate(faults):
        if drill.budget_seconds is not None and time.monotonic() - began > drill.budget_seconds:
            say(f"the budget is used up: {len(faults) - number} faults are left out")
            break
        name = f"{number:03d}"
        try:
            evidence = run_trial(fault, site, name)
            wanted = replace(expected, sha256=_reference(fault, evidence, site, expected, worlds, references))
            judged = judge(fault, evidence, wanted)
        except Preempted as error:
            raise Preempted(f"stopped; the record holds {number} of {len(faults)} faults") from error
        except (SeatrialError, OSError) as error:  # ours, not the training's: the faults that follow can be met still
            evidence, judged = NO_EVIDENCE, inconclusive(f"the drill failed: {error}")
        lines.append(_line(fault, evidence, judged))
        _tidy(site.folder / name, lines[-1])
        say(f"{number + 1:>3}/{len(faults)} {judged.verdict:<5} {fault.name}, {fault.moment}" + _why(judged))
        keep(_result(about, undisturbed, lines, left_out=len(faults) - len(lines), seconds=time.monotonic() - began))
    return _result(about, undisturbed, lines, left_out=len(faults) - len(lines), seconds=time.monotonic() - began)


def chosen(only: Sequence[str], *, gpus: int) -> list[Kind]:
    """The kinds whose family or name is asked for; all when nothing is. What cannot be done here is left out.

    Raises:
        UsageError: none is.
    """
    kinds = [
        kind for kind in CATALOGUE if not only or any(o == kind.family or o.lower() in kind.name.lower() for o in only)
    ]
    if not kinds:
        families = sorted({kind.family for kind in CATALOGUE})
        raise UsageError(f"--only {','.join(only)}: no such fault; families are {', '.join(families)}")
    possible = [kind for kind in kinds if not impossible(kind, gpus=gpus)]
    if not possible:
        raise UsageError(f"--only {','.join(only)}: {impossible(kinds[0], gpus=gpus)}")
    return possible


def impossible(kind: Kind, *, gpus: int) -> str:
    """Why a kind of fault cannot be met on this machine; empty when it can."""
    if kind.nodes > 1 and gpus:
        return f"{kind.name}: two nodes on one machine would share its GPUs"
    if kind.act in CUTTING and not can_cut():
        return f"{kind.name}: needs root and iproute2, for network namespaces"
    return ""


def _usable_gpus() -> int:
    """Those that a training would find. Asked without using one: no process that forks may have."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    named = [part for part in visible.split(",") if part.strip() not in ("", "-1")] if visible is not None else None
    return min(len(gpu_names()), len(named)) if named is not None else len(gpu_names())


@contextmanager
def _held(out: Path) -> Iterator[None]:
    """The directory of a drill, for this one alone."""
    there = [path.name for path in out.iterdir()] if out.exists() else []
    if _MARK not in there and set(there) - {".lock"}:
        raise UsageError(f"--out {out} is not empty and holds no drill; choose another")
    with ExitStack() as held:
        try:
            held.enter_context(locked(out, lambda: None))
        except UsageError as error:
            raise UsageError(f"--out {out} is in use by another drill; choose another") from error
        yield


def _site(drill: Drill, gpus: int) -> Site:
    """The directory of the drill, emptied of the one before, and what is trained in it."""
    write_json(drill.out / _MARK, {"seed": drill.seed, "worlds": drill.worlds})
    for before in drill.out.iterdir():
        if before.is_dir():
            shutil.rmtree(before)
    if 0 < gpus < max(drill.worlds):
        raise UsageError(f"--world {max(drill.worlds)}: this machine has {gpus} GPUs")
    out = drill.out.resolve()
    if drill.settings is not None:
        return Site(out, plan.shortened(drill.settings, out), warm=False, seconds=COLD_SECONDS)
    import_everything()
    tiny = plan.tiny_settings(out, timeout_seconds=GPU_TIMEOUT_SECONDS if gpus else CPU_TIMEOUT_SECONDS)
    if gpus and not forks_can_use_gpus():
        return Site(out, tiny, warm=False, seconds=COLD_SECONDS)
    return Site(out, tiny, warm=True, seconds=WARM_SECONDS)


def _undisturbed(site: Site, world: int) -> Evidence:
    calm = Fault(name="undisturbed", family="", injections=(), answer="none", worlds=(world,))
    evidence = run_trial(calm, site, "undisturbed")
    if evidence.sha256 is None or len(evidence.starts) > 1:
        outcome = evidence.starts[-1].outcome
        said = outcome["reason"] if outcome is not None else "no outcome"
        raise SeatrialError(
            f"the undisturbed training did not come to its end: {said}; its output is in "
            f"{site.folder / 'undisturbed' / 'torchrun.log'}"
        )
    return evidence


def _reference(
    fault: Fault,
    evidence: Evidence,
    site: Site,
    expected: Expected,
    worlds: Sequence[int],
    references: dict[str, str | None],
) -> str | None:
    """What the adapter must be. Where a step is left out: that of a training of another size that leaves it out too."""
    if fault.answer != "skip" or not evidence.fired or expected.sha256 is None:
        return expected.sha256
    step = int(evidence.fired[0]["step"])
    world = next((other for other in worlds if other != fault.worlds[0]), fault.worlds[0])
    key = f"without step {step} at {world}"
    if key not in references:
        moment = fault.injections[0].moment.model_copy(update={"step": step})
        struck = fault.injections[0].model_copy(update={"rank": 0, "moment": moment})
        other = fault.model_copy(update={"injections": (struck,), "worlds": (world,)})
        references[key] = run_trial(other, site, "reference").sha256
    return references[key]


def _line(fault: Fault, evidence: Evidence, judged: Judged) -> JsonObject:
    """A fault in the result."""
    return {
        "name": fault.name,
        "moment": fault.moment,
        "family": fault.family,
        "verdict": judged.verdict.value,
        "reasons": list(judged.reasons),
        "detected_s": judged.detected_s,
        "recovered_s": judged.recovered_s,
        "lost_steps": judged.lost_steps,
        "final_sha256": evidence.sha256,
        "culprit": judged.culprit,
        "worlds": [event["world_size"] for event in evidence.events if event["event"] == "start"],
        "restarts_by_torchrun": fault.restarts,
        "productive_s": productive_seconds(evidence),
        "seconds": _seconds(evidence),
    }


def _result(
    about: JsonObject, undisturbed: Evidence, lines: Sequence[JsonObject], *, left_out: int, seconds: float
) -> JsonObject:
    wall = sum(line["seconds"] for line in lines)
    verdicts = [line["verdict"] for line in lines]
    return {
        "verdict": final_verdict(Verdict(verdict) for verdict in verdicts).value,
        "faults": list(lines),
        "counts": {verdict.value: verdicts.count(verdict) for verdict in Verdict if verdict in verdicts},
        "left_out": left_out,
        "undisturbed_sha256": undisturbed.sha256,
        "undisturbed_seconds": _seconds(undisturbed),
        "ettr": sum(line["productive_s"] for line in lines) / wall if wall else None,
        "ettr_definition": ETTR,
        "seconds": seconds,
        **about,
    }


def _seconds(evidence: Evidence) -> float:
    return evidence.starts[-1].ended - evidence.starts[0].began if evidence.starts else 0.0


def _why(judged: Judged) -> str:
    return f": {'; '.join(judged.reasons)}" if judged.reasons else ""


def _tidy(folder: Path, line: JsonObject) -> None:
    """Keep what somebody will want to look at."""
    if line["verdict"] == Verdict.PASS:
        shutil.rmtree(folder)
    else:
        (folder / "judged.json").write_text(json.dumps(line, indent=2))
