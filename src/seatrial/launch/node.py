"""What runs on every node, once, whatever the target: ``python -m seatrial.launch.node VERB [CONFIG] [ARGUMENT...]``.

It starts what the verb needs on this node, passes requests to stop on, starts a training that failed again, and ends
with the code that the training itself gave (75: saved, please requeue).

Which node this is stands in torchrun's own variables, ``seatrial.launch.job.NODE_VARIABLES``. Without them it is the
only one.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from seatrial.dist.elastic import ENVIRONMENT, RENDEZVOUS
from seatrial.errors import EXIT_INCONCLUSIVE, EXIT_VERDICT_FAIL, Preempted, SeatrialError, UsageError
from seatrial.launch.preflight.finding import as_text
from seatrial.launch.preflight.node import check_node, refuse_node
from seatrial.launch.ranks import TELLING
from seatrial.records import JsonObject, Verdict
from seatrial.rundir import RunDir
from seatrial.settings import TrainSettings, load_settings
from seatrial.stop import SIGNALS, StopRequest, stop_requests

RESTARTS = 3
"""How often a training that failed is started again here, before the scheduler is to do it. PET_MAX_RESTARTS wins."""

PAUSE_SECONDS = 5.0
"""Before that: what other nodes take to see that it failed, so that all meet at a store that is new."""

OUTCOME_SECONDS = 30.0
"""How long we wait for the first rank's last word, which another node may have to write to a slow file system."""

_POLL_SECONDS = 0.2
_SHUTDOWN_SECONDS = 10
"""From the last moment at which a save may end to the kill of what still runs."""


@dataclass(frozen=True)
class Node:
    """One node of a job.

    Attributes:
        nodes: how many there are, or "LEAST:MOST" where they come and go.
        processes: of this node.
    """

    rank: int = 0
    nodes: str = "1"
    processes: int = 1
    address: str = "127.0.0.1"
    port: int = 29500

    @property
    def is_elastic(self) -> bool:
        return ":" in self.nodes


@dataclass(frozen=True)
class Work:
    """What a node starts.

    Attributes:
        environment: added to our own.
        run: the run directory whose outcome says how it ended, where there is one.
        restarts: how often it is started again after a failure.
        hidden_codes: exit codes that stand for 0 here, because the first node gives them.
    """

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    run: RunDir | None = None
    restarts: int = 0
    hidden_codes: tuple[int, ...] = ()


RETRY_CODE = "SEATRIAL_RETRY_CODE"
"""The variable with the one exit code that a scheduler takes for "start it again", where that is not for us to say."""


def main() -> None:
    try:
        code = run_node(sys.argv[1:], os.environ)
    except SeatrialError as error:
        _say(f"error: {error}")
        code = error.exit_code
    sys.exit(code_for_scheduler(code, os.environ))


def code_for_scheduler(code: int, environment: Mapping[str, str]) -> int:
    """``code``, or where it may be started again the one that the scheduler knows.

    Raises:
        UsageError: that is no number.
    """
    again = code in (Preempted.exit_code, SeatrialError.exit_code) and RETRY_CODE in environment
    return _number(environment, RETRY_CODE) if again else code


def run_node(arguments: Sequence[str], environment: Mapping[str, str]) -> int:
    """Do this node's part of a job, to its end; the exit code of all of it.

    Raises:
        UsageError: no verb, settings that are wrong, or only some of torchrun's variables.
        SeatrialError: this node lacks what the job needs.
        Preempted: asked to stop before anything was started.
    """
    if not arguments:
        raise UsageError("no verb: expected one such as train; see `seatrial launch --help`")
    node = find_node(environment)
    work = plan_work(arguments[0], arguments[1:], node, environment)
    if work is None:
        _say(f"node {node.rank}: {arguments[0]} runs on the first node alone")
        return 0
    with stop_requests(at_once=True):  # as process 1 of a container it would get no signal that it did not ask for
        findings = check_node(environment, lambda text: _say(f"node {node.rank}: {text}"))
    refuse_node(findings)
    if doubts := [finding for finding in findings if finding.verdict is not Verdict.PASS]:
        _say(f"node {node.rank}: {as_text(doubts)}")
    with stop_requests() as stop:
        for left in reversed(range(work.restarts + 1)):
            code = _run_once(work, stop)
            if code != SeatrialError.exit_code or stop.reason or not left:
                break
            _say(f"node {node.rank}: failed; starting again in {PAUSE_SECONDS:g} s, {left} more times at the most")
            time.sleep(PAUSE_SECONDS)
            if stop.reason:
                return Preempted.exit_code  # what was saved is saved
    return 0 if code in work.hidden_codes else code


def find_node(environment: Mapping[str, str]) -> Node:
    """Which node this is.

    Raises:
        UsageError: one of torchrun's variables is missing or no number.
    """
    nodes = environment.get("PET_NNODES", "1")
    processes = _number(environment, "PET_NPROC_PER_NODE", "1")
    if nodes == "1":
        return Node(processes=processes)
    if ":" in nodes:  # torchrun finds out who is who, at PET_RDZV_ENDPOINT
        return Node(rank=_number(environment, "PET_NODE_RANK", "0"), nodes=nodes, processes=processes)
    return Node(
        rank=_number(environment, "PET_NODE_RANK"),
        nodes=str(_number(environment, "PET_NNODES")),
        processes=processes,
        address=_given(environment, "PET_MASTER_ADDR"),
        port=_number(environment, "PET_MASTER_PORT", "29500"),
    )


def plan_work(verb: str, arguments: Sequence[str], node: Node, environment: Mapping[str, str]) -> Work | None:
    """What this node starts for a verb; None when it has nothing to do.

    A training and its benchmark are ranks under torchrun. An acceptance is one process a node, which sees itself as
    the only rank there and starts what it needs. A command runs on every node, with torchrun's variables, so that it
    may be torchrun. Everything else is the first node's.

    Raises:
        UsageError: the settings of a training are wrong.
    """
    seatrial = [sys.executable, "-m", "seatrial", verb, *arguments]
    match verb:
        case "train":
            return _training(arguments, node, environment)
        case "bench" if arguments[:1] == ["train"]:
            return Work((*torchrun(node, environment), *seatrial[1:]), _variables(node))
        case "accept":
            ranks = {
                "RANK": str(node.rank),
                "WORLD_SIZE": node.nodes,
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "1",
                "MASTER_ADDR": node.address,
                "MASTER_PORT": str(node.port),
            }
            verdicts = (EXIT_VERDICT_FAIL, EXIT_INCONCLUSIVE) if node.rank else ()
            return Work(tuple(seatrial), ranks if node.nodes != "1" else {}, hidden_codes=verdicts)
        case "command":
            return Work(tuple(arguments))
        case _:
            return Work(tuple(seatrial)) if node.rank == 0 else None


def _training(arguments: Sequence[str], node: Node, environment: Mapping[str, str]) -> Work:
    words = [word for word in arguments if not word.startswith("-")]
    if not words:
        raise UsageError("train: no settings file")
    settings = load_settings(Path(words[0]), [word for word in words[1:] if "=" in word], TrainSettings)
    restarts = _number(environment, "PET_MAX_RESTARTS", str(RESTARTS))
    grace = settings.run.grace_seconds + _SHUTDOWN_SECONDS
    return Work(
        (*torchrun(node, environment, grace_seconds=grace), "-m", "seatrial", "train", *arguments),
        _variables(node),
        run=RunDir(settings.run.dir),
        restarts=0 if node.is_elastic else restarts,
    )


def torchrun(node: Node, environment: Mapping[str, str], *, grace_seconds: int = 30) -> list[str]:
    """torchrun on this node, before ``-m MODULE``.

    Ranks that failed are started again by us, not by it: it cannot tell a failure from a request to stop, and nodes
    that count their restarts each for itself do not find each other once one of them was replaced. Where nodes come
    and go it does restart them, at a rendezvous that tells rounds apart.
    """
    start = [
        sys.executable,
        "-m",
        "seatrial.launch.ranks",
        f"--nproc-per-node={node.processes}",
        f"--shutdown-timeout={grace_seconds}",
        "--signals-to-handle=SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1",  # Slurm sends them to every process of a step
    ]
    if node.nodes == "1":
        alone = ["--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", f"--rdzv-id={os.getpid()}"]
        return [*start, "--nnodes=1", "--max-restarts=0", "--local-addr=127.0.0.1", *alone]
    if node.is_elastic:
        given = "PET_RDZV_CONF" in environment
        conf = [] if given else [f"--rdzv-conf={','.join(f'{name}={value}' for name, value in RENDEZVOUS.items())}"]
        return [*start, f"--nnodes={node.nodes}", f"--max-restarts={environment.get('PET_MAX_RESTARTS', '10')}", *conf]
    place = [f"--node-rank={node.rank}", f"--master-addr={node.address}", f"--master-port={node.port}"]
    return [*start, f"--nnodes={node.nodes}", "--max-restarts=0", *place]


def _variables(node: Node) -> dict[str, str]:
    return ENVIRONMENT if node.is_elastic else {}


def _run_once(work: Work, stop: StopRequest) -> int:
    """Start it, pass a request to stop on, and find out how it ended."""
    before = work.run.read_outcome() if work.run is not None else None
    with subprocess.Popen(
        work.argv,
        env={**os.environ, **work.environment},
        start_new_session=True,  # a Ctrl-C is ours to pass on, once
    ) as process:
        try:
            told = False
            while process.poll() is None:
                if stop.reason and not told:
                    told = True
                    process.terminate()  # whoever asked us will also kill what does not end
                time.sleep(_POLL_SECONDS)
        except KeyboardInterrupt:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        ended = process.returncode
    if work.run is None:
        return _plain_code(ended, asked=bool(stop.reason))
    return _true_code(work.run, ended, before, asked=bool(stop.reason))


def _plain_code(ended: int, *, asked: bool) -> int:
    """Of a program that does not tell by a file how it ended, by the custom of shells where a signal ended it."""
    code = ended if ended >= 0 else 128 - ended
    return Preempted.exit_code if asked and code - 128 in SIGNALS else code


def _true_code(run: RunDir, ended: int, before: JsonObject | None, *, asked: bool) -> int:
    """What our ranks said; where that was only that they failed, what the run directory says, once it says it.

    The first rank may be on another node, and end after ours.
    """
    if ended == 0 or ended in TELLING:
        return ended
    deadline = time.monotonic() + OUTCOME_SECONDS
    while (outcome := run.read_outcome()) in (None, before) and time.monotonic() < deadline:
        time.sleep(_POLL_SECONDS)
    if outcome in (None, before) and asked:
        return Preempted.exit_code  # before there was anything to save
    return run.exit_code(ended, before)


def _number(environment: Mapping[str, str], name: str, otherwise: str | None = None) -> int:
    text = environment.get(name, otherwise) if otherwise is not None else _given(environment, name)
    if not text.isdecimal():
        raise UsageError(f"{name}={text}: expected a number; it is set by whatever starts a node")
    return int(text)


def _given(environment: Mapping[str, str], name: str) -> str:
    try:
        return environment[name]
    except KeyError as error:
        raise UsageError(f"{name} is not set, though PET_NNODES is: whatever starts a node sets both") from error


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
