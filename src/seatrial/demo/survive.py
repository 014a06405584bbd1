"""Training under torchrun, with one worker killed in the middle, and what that did to the run."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from seatrial.errors import IntegrityError, Preempted, SeatrialError
from seatrial.records import JsonObject, write_json
from seatrial.rundir import RunDir
from seatrial.settings import TrainSettings
from seatrial.stop import stop_requests

_POLL_SECONDS = 0.5
# torchrun gives its workers this long to save; it is their collective timeout too.
_STOP_SECONDS = 40.0


@dataclass(frozen=True)
class Survival:
    """``max_loss_difference`` is over the steps that both attempts ran; 0.0 means equal to the last digit."""

    step: int
    resumed_from: int
    steps_run_twice: int
    max_loss_difference: float
    seconds_to_next_step: float


def train_through_a_kill(settings: TrainSettings, log: Path, *, processes: int) -> Iterator[JsonObject]:
    """Run ``seatrial train`` on ``processes`` local processes; kill the last of them once; yield metrics as they come.

    The kill comes half an interval after the checkpoint in the middle of the run, if there was none before.

    Raises:
        Preempted: we were asked to stop, and the training has saved.
        SeatrialError: the training did not reach its end; says where its output is.
    """
    run = RunDir(settings.run.dir)
    config = settings.run.dir.with_name("train.yaml")
    write_json(config, settings.model_dump(mode="json"))  # JSON is YAML
    with log.open("ab") as output, stop_requests(run.stop_file) as stop:
        launcher = subprocess.Popen(
            _torchrun(config, processes),
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, "OMP_NUM_THREADS": str(max(1, (os.cpu_count() or 1) // processes))},
            start_new_session=True,  # a Ctrl-C is ours to pass on, once
        )
        try:
            seen = 0
            while launcher.poll() is None and not stop.reason:
                metrics = run.read_metrics()
                yield from metrics[seen:]
                seen = len(metrics)
                if _is_time_to_kill(run, settings, metrics):
                    _kill_last_worker(run, metrics[-1]["step"])
                time.sleep(_POLL_SECONDS)
        finally:
            _stop(launcher)
    if stop.reason:
        raise Preempted(f"{stop.reason}: training saved what it had; the same command goes on")
    yield from run.read_metrics()[seen:]
    outcome = run.read_outcome()
    if launcher.returncode != 0 or outcome is None or outcome["status"] != "done":
        reason = outcome["reason"] if outcome else f"torchrun ended with {launcher.returncode}"
        raise SeatrialError(f"training did not finish: {reason}; its output is in {log}")


def judge_survival(metrics: Sequence[JsonObject], events: Sequence[JsonObject], packs_per_step: int) -> Survival:
    """Compare the two records of every step that was run twice, and account for every pack.

    Raises:
        IntegrityError: no kill or no resume happened, a pack was skipped, or a repeated step used other packs.
    """
    kills = [event for event in events if event["event"] == "fault" and event["what"] == "SIGKILL"]
    resumes = [event for event in events if event["event"] == "resume" and kills and event["time"] > kills[0]["time"]]
    if not kills or not resumes:
        raise IntegrityError(f"expected a kill and a resume, found {len(kills)} and {len(resumes)}")
    kill, resume = kills[0], resumes[0]
    first = {record["step"]: record for record in metrics if record["attempt"] < resume["attempt"]}
    again = {record["step"]: record for record in metrics if record["attempt"] == resume["attempt"]}
    twice = sorted(first.keys() & again.keys())
    for step in twice:
        if first[step]["packs"] != again[step]["packs"]:
            raise IntegrityError(f"step {step} was run again on other packs")
    steps = first | again
    used = [pack for step in sorted(steps) for pack in steps[step]["packs"]]
    if used != list(range(len(steps) * packs_per_step)):
        raise IntegrityError("a pack was skipped or used twice")
    after_kill = [record for record in metrics if record["attempt"] == resume["attempt"]]
    return Survival(
        step=kill["step"],
        resumed_from=resume["step"],
        steps_run_twice=len(twice),
        max_loss_difference=max((abs(first[step]["loss"] - again[step]["loss"]) for step in twice), default=0.0),
        seconds_to_next_step=resume["time"] + after_kill[0]["seconds"] - kill["time"],
    )


def _torchrun(config: Path, processes: int) -> list[str]:
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--max-restarts=3"]
    return [*launch, f"--nproc-per-node={processes}", "-m", "seatrial", "train", str(config)]


def _is_time_to_kill(run: RunDir, settings: TrainSettings, metrics: Sequence[JsonObject]) -> bool:
    """Half an interval after a committed checkpoint of the run's middle, when nobody was killed before."""
    interval = settings.checkpoint.every_steps
    assert interval is not None, "the demo saves by steps"
    if not metrics or metrics[-1]["step"] % interval < interval // 2:
        return False
    events = run.read_events()
    if any(event["event"] == "fault" for event in events):
        return False
    packs_per_epoch = next(event["packs_per_epoch"] for event in events if event["event"] == "data")
    optimizer = settings.optimizer
    steps = optimizer.steps or (optimizer.epochs or 1) * packs_per_epoch // optimizer.packs_per_step
    saved = max((event["step"] for event in events if event["event"] == "save"), default=0)
    return bool(saved >= max(interval, steps // 2 - interval) and saved >= metrics[-1]["step"] // interval * interval)


def _kill_last_worker(run: RunDir, step: int) -> None:
    start = [event for event in run.read_events() if event["event"] == "start"][-1]
    run.event("fault", what="SIGKILL", rank=start["world_size"] - 1, pid=start["pids"][-1], step=step)
    os.kill(start["pids"][-1], signal.SIGKILL)


def _stop(launcher: subprocess.Popen[bytes]) -> None:
    """Ask torchrun to end, which asks its workers to save; insist when it does not."""
    if launcher.poll() is None:
        launcher.terminate()
        try:
            launcher.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(launcher.pid, signal.SIGKILL)
            launcher.wait()
