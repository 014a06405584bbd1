"""A run's events as a story: when, what, and how much work was done twice. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from seatrial.records import JsonObject

_SAVES_SHOWN_ONE_BY_ONE = 2


@dataclass(frozen=True)
class Entry:
    """One line. ``seconds`` counts from the first event; ``kind`` is start, progress, trouble or end."""

    seconds: float
    kind: str
    title: str
    detail: str


@dataclass(frozen=True)
class Replay:
    """Steps that a resumed attempt ran again, and how far their losses are from the first time."""

    attempt: int
    resumed_from: int
    first_lost: int
    last_lost: int
    max_loss_difference: float


def timeline(events: Sequence[JsonObject], metrics: Sequence[JsonObject]) -> list[Entry]:
    """Events in order; many saves in a row are told as one line."""
    if not events:
        return []
    began = events[0]["time"]
    replays = {replay.attempt: replay for replay in replays_of(metrics)}
    entries = []
    for kind, group in groupby(events, key=lambda event: str(event["event"])):
        same = list(group)
        if kind == "save" and len(same) > _SAVES_SHOWN_ONE_BY_ONE:
            entries.append(_saves(same, began))
        else:
            entries += [_entry(event, began, replays) for event in same]
    return entries


def replays_of(metrics: Sequence[JsonObject]) -> list[Replay]:
    """One for each attempt that began below the last step of an earlier one."""
    found = []
    seen: dict[int, float] = {}
    for number, group in groupby(metrics, key=lambda record: int(record["attempt"])):
        attempt = list(group)
        again = [record for record in attempt if record["step"] in seen]
        if again:
            found.append(
                Replay(
                    attempt=number,
                    resumed_from=again[0]["step"] - 1,
                    first_lost=again[0]["step"],
                    last_lost=again[-1]["step"],
                    max_loss_difference=max(abs(record["loss"] - seen[record["step"]]) for record in again),
                )
            )
        seen.update((record["step"], record["loss"]) for record in attempt)
    return found


def kept_steps(metrics: Sequence[JsonObject]) -> list[JsonObject]:
    """One record a step, in order: of a step run twice the later, which is the one the model went on from."""
    latest = {record["step"]: record for record in metrics}
    return [latest[step] for step in sorted(latest)]


def _entry(event: JsonObject, began: float, replays: dict[int, Replay]) -> Entry:
    seconds = event["time"] - began
    match event:
        case {"event": "start", "attempt": 1}:
            return Entry(seconds, "start", "Started", _processes(event))
        case {"event": "start", "attempt": attempt}:
            replay = replays.get(attempt)
            lost = "; nothing had been saved: from the beginning" if replay and replay.resumed_from == 0 else ""
            return Entry(seconds, "trouble", f"Started again, attempt {attempt}", _processes(event) + lost)
        case {"event": "data", "rows": rows, "left_out": left_out}:
            reasons = "; ".join(f"{count} left out: {reason}" for reason, count in left_out.items())
            return Entry(seconds, "progress", f"{rows:,} rows ready", reasons)
        case {"event": "resume", "step": step, "attempt": attempt}:
            replay = replays.get(attempt)
            detail = _replayed(replay) if replay else "no step had to be run again"
            return Entry(seconds, "progress", f"Resumed from step {step}", detail)
        case {"event": "save", "step": step, "seconds_blocked": blocked}:
            return Entry(seconds, "progress", f"Saved step {step}", f"training stood still for {1000 * blocked:.3g} ms")
        case {"event": "done"}:
            return Entry(seconds, "end", "Done", "")
        case {"event": str(kind)}:
            rest = {key: value for key, value in event.items() if key not in ("event", "time")}
            detail = "; ".join(f"{key.replace('_', ' ')}: {value}" for key, value in rest.items())
            return Entry(seconds, "trouble", kind.replace("_", " ").capitalize(), detail)
    raise AssertionError(f"an event without a name: {event}")


def _saves(saves: Sequence[JsonObject], began: float) -> Entry:
    blocked = sorted(1000 * save["seconds_blocked"] for save in saves)
    return Entry(
        saves[0]["time"] - began,
        "progress",
        f"Saved {len(saves)} times, steps {saves[0]['step']} to {saves[-1]['step']}",
        f"training stood still for {blocked[len(blocked) // 2]:.3g} ms (median), {blocked[-1]:.3g} ms at most",
    )


def _processes(event: JsonObject) -> str:
    size = event.get("world_size", 1)
    device = f" on {event['device']}" if "device" in event else ""
    return f"{size} process{'es' if size != 1 else ''}{device}"


def _replayed(replay: Replay) -> str:
    steps = (
        f"step {replay.first_lost}"
        if replay.first_lost == replay.last_lost
        else f"steps {replay.first_lost} to {replay.last_lost}"
    )
    if replay.max_loss_difference == 0:
        return f"{steps} run again; every loss came out the same to the last digit"
    return f"{steps} run again; largest difference in loss {replay.max_loss_difference:.3g}"
