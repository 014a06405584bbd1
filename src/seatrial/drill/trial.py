"""One training that is broken on purpose, and restarted as a scheduler does until it is done."""

import hashlib
import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from seatrial.dist.heartbeat import heartbeat_directory
from seatrial.drill import network
from seatrial.drill.fault import Fault, Order
from seatrial.drill.torchrun import Agent, await_end, end_all, free_port, start, torchrun_arguments
from seatrial.drill.wounds import mend_row, wound
from seatrial.records import JsonObject, read_jsonl, write_json
from seatrial.rundir import RunDir
from seatrial.settings import TrainSettings

ATTEMPTS = 8
"""Starts by the scheduler, after which a fault is given up."""

LOST_SECONDS = 20.0
"""What is left of a job gets so long after one of its nodes was lost."""

WATCHED_SECONDS = 30.0
"""After the last start, what watchdogs get to say what they found: a node is silent for 10 s before it is called so."""

_POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Start:
    """One start by the scheduler. ``returncode`` is None when it was ended because its time was over."""

    world: int
    began: float
    ended: float
    returncode: int | None
    outcome: JsonObject | None


@dataclass(frozen=True)
class Evidence:
    """All that is known of a trial. ``wounded``: the checkpoint or file that was damaged, and when."""

    fired: tuple[JsonObject, ...]
    starts: tuple[Start, ...]
    events: tuple[JsonObject, ...]
    metrics: tuple[JsonObject, ...]
    witness: tuple[JsonObject, ...]
    wounded: JsonObject | None
    sha256: str | None


NO_EVIDENCE = Evidence((), (), (), (), (), None, None)


@dataclass(frozen=True)
class Site:
    """Where trials take place. ``seconds``: what one start may take. ``warm``: see :mod:`seatrial.drill.torchrun`."""

    folder: Path
    settings: TrainSettings
    warm: bool
    seconds: float


def run_trial(fault: Fault, site: Site, name: str) -> Evidence:
    """Train in ``site.folder/name``, break, restart at the next world size, until the training says that it is done."""
    folder = site.folder / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    settings = _settings_of(fault, site, folder)
    run = RunDir(settings.run.dir)
    order = Order(folder=folder, run=run.path, injections=fault.injections)
    (folder / "order.json").write_text(order.model_dump_json(indent=2))
    write_json(folder / "train.yaml", settings.model_dump(mode="json"))

    try:
        starts, wounded = _restart_until_done(fault, site, folder, run, settings)
        await_end(folder, WATCHED_SECONDS)
    finally:
        end_all(folder)
        shutil.rmtree(heartbeat_directory(run.path), ignore_errors=True)  # in memory, where killed ranks left it
    return Evidence(
        fired=tuple(_fired(order)),
        starts=tuple(starts),
        events=tuple(run.read_events()),
        metrics=tuple(run.read_metrics()),
        witness=tuple(read_jsonl(order.witness)),
        wounded=wounded,
        sha256=sha256_of(run),
    )


def _restart_until_done(
    fault: Fault, site: Site, folder: Path, run: RunDir, settings: TrainSettings
) -> tuple[list[Start], JsonObject | None]:
    """As a scheduler does: all starts; and what was damaged between two of them, and when."""
    starts: list[Start] = []
    wounded: JsonObject | None = None
    for number in range(ATTEMPTS):
        world = fault.worlds[min(number, len(fault.worlds) - 1)]
        nodes = fault.nodes if number == 0 else 1
        starts.append(_start(site, folder, run, world, nodes, fault))
        outcome = starts[-1].outcome
        if outcome is not None and outcome["status"] == "done":
            break
        if fault.wound == "bad row" and wounded is not None and outcome is not None and outcome["exit_code"] == 2:
            mend_row(settings.data.train)  # as the user does who reads the message
        elif outcome is not None and outcome["exit_code"] in (2, 76, 78):
            break  # no scheduler starts these again
        if fault.wound is not None and wounded is None:
            damaged = wound(fault.wound, run, settings.data.train)
            wounded = {"time": time.time(), "what": damaged} if damaged else None
    return starts, wounded


def sha256_of(run: RunDir) -> str | None:
    """Of the adapter, or of the files of a whole model; None while there is none."""
    digest = hashlib.sha256()
    files = sorted([*run.adapter.glob("*.safetensors"), *run.model.glob("*.safetensors")])
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest() if files else None


def _settings_of(fault: Fault, site: Site, folder: Path) -> TrainSettings:
    settings = site.settings.model_copy(update={"run": site.settings.run.model_copy(update={"dir": folder / "run"})})
    if fault.wound != "bad row":
        return settings
    rows = folder / "data"  # a copy, to be spoilt
    shutil.copytree(settings.data.train, rows)
    return settings.model_copy(update={"data": settings.data.model_copy(update={"train": rows})})


def _fired(order: Order) -> list[JsonObject]:
    marks = [order.mark(number) for number in range(len(order.injections))]
    return [record for mark in marks if mark.exists() for record in _json_of(mark)]


def _json_of(path: Path) -> list[JsonObject]:
    text = path.read_text()
    return [json.loads(text)] if text else []


def _start(site: Site, folder: Path, run: RunDir, world: int, nodes: int, fault: Fault) -> Start:
    """Run torchrun to its end, on one node or on two."""
    before = run.read_outcome()
    module = ["seatrial.drill.saboteur", str(folder / "order.json"), "train", str(folder / "train.yaml")]
    log = folder / "torchrun.log"
    began = time.time()
    with network.nodes(nodes, apart=any(each.act in network.CUTTING for each in fault.injections)) as places:
        port = free_port() if nodes > 1 else 0
        agents: list[Agent] = []
        try:
            for node, place in enumerate(places):
                told = torchrun_arguments(
                    world // nodes,
                    restarts=fault.restarts,
                    node=node,
                    nodes=nodes,
                    address=places[0].address,
                    port=port,
                )
                agents.append(start(told, module, log, warm=site.warm and not place.prefix, prefix=place.prefix))
            returncode = _wait(agents, site.seconds)
        finally:
            for agent in agents:
                agent.kill()
    outcome = run.read_outcome()
    return Start(world, began, time.time(), returncode, outcome if outcome != before else None)


def _wait(agents: list[Agent], seconds: float) -> int | None:
    """Until all agents have ended; the worst exit code. None when what was left had to be ended for them.

    A scheduler ends what is left of a job once a node of it is lost.
    """
    deadline = time.monotonic() + seconds
    while any(agent.poll() is None for agent in agents):
        time.sleep(_POLL_SECONDS)
        if any(agent.poll() is not None for agent in agents):
            deadline = min(deadline, time.monotonic() + LOST_SECONDS)
        if time.monotonic() > deadline:
            return None
    return max((agent.returncode or 0 for agent in agents), key=abs)
