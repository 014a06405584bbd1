"""The catalogue: every fault, how it is injected, and what must be said of it.

Faults are real where this machine allows it (processes that misbehave, file systems and networks of their own through
``unshare``, GPUs that are here), and recordings of one with one thing changed where it does not. Each entry says which.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seatrial.accept.blame.inquest import investigate
from seatrial.accept.blame.plan import tournament
from seatrial.accept.check import Judgement, Request
from seatrial.accept.cluster import checks as between
from seatrial.accept.cluster import member
from seatrial.accept.cluster.board import Board
from seatrial.accept.cluster.conductor import RankCluster, wrong_nodes
from seatrial.accept.cluster.crew import Crew
from seatrial.accept.limits import Limits
from seatrial.accept.runner import Worker
from seatrial.accept.selftest import flipped_bit, gpu_faults
from seatrial.accept.selftest.injected import (
    NAMESPACE,
    PROCESS,
    RECORDED,
    Caught,
    Fault,
    caught,
    environment,
    judged,
)
from seatrial.accept.training import replay
from seatrial.acceptance import Acceptance, read_acceptance
from seatrial.records import JsonObject, Verdict
from seatrial.shell import run


def small_shm(scratch: Path) -> Caught:
    name = "small /dev/shm"
    facts = _in_mounts("mount -t tmpfs -o size=32m tmpfs /dev/shm", "host.limits", scratch)
    if facts is None:
        facts = {"open_files": 1048576, "memlock_gib": None, "shm_gib": 1 / 32, "rdma_devices": 8, "gpus": 8}
        return caught(name, judged("host.limits", facts), RECORDED, "/dev/shm")
    return caught(name, judged("host.limits", facts), NAMESPACE, "/dev/shm size 0.03125 GiB")


def full_disk(scratch: Path) -> Caught:
    name, target = "full disk", scratch / "full"
    target.mkdir(exist_ok=True)
    fill = f"mount -t tmpfs -o size=4m tmpfs {target}; cat /dev/zero > {target}/ballast 2>/dev/null"
    facts = _in_mounts(fill, "storage.space", target)
    if facts is None:
        facts = {"directory": str(target), "total_gib": 100.0, "free_gib": 0.0, "free_inodes": 10**6}
        return caught(name, judged("storage.space", facts), RECORDED, str(target), "full")
    return caught(name, judged("storage.space", facts), NAMESPACE, str(target), "full")


def _in_mounts(prepare: str, check: str, directory: Path) -> Any:
    """Facts of a check in a mount namespace of its own; None where the kernel lets us have none."""
    request = Request(check=check, seconds=0.3, directory=directory).model_dump_json()
    shell = f"{prepare}; exec {sys.executable} -m seatrial.accept.worker"
    answer = run(["unshare", "-rm", "sh", "-c", shell], timeout_seconds=60, stdin=request + "\n")
    if not answer.ok or not answer.stdout.strip():
        return None
    return json.loads(answer.stdout.splitlines()[-1]).get("facts")


def slow_disk(scratch: Path) -> Caught:
    argv = [sys.executable, "-m", "seatrial.accept.selftest.slow_disk"]
    with Worker(scratch / "slow_disk.log", argv) as worker:
        answer = worker.ask(Request(check="storage.disk", seconds=1.0, directory=scratch), 120)
    judgement = judged("storage.disk", answer.get("facts", {}))
    return caught("slow disk", judgement, PROCESS, str(scratch), "durable sequential write")


LATE, WRONG = 2, 1


def delayed_rank(played: Judgement) -> Caught:
    others = tuple(f"rank {rank}," for rank in range(RANKS) if rank != LATE)
    return caught("delayed rank", played, PROCESS, f"rank {LATE}, rail 0", innocent=others)


def wrong_result_bit(played: Judgement) -> Caught:
    others = tuple(f"rank {rank}: its sums" for rank in range(RANKS) if rank != WRONG)
    return caught("wrong result bit", played, PROCESS, f"rank {WRONG}: its sums are wrong", innocent=others)


RANKS = 4


def play_ranks(scratch: Path, sabotage: Sequence[JsonObject] = (), ranks: int = RANKS) -> Judgement:
    """A tournament of ranks on this machine, as if each were a node; of some, the exchange is sabotaged."""
    port = free_port()
    board = Board.at("127.0.0.1", port, host=True, prefix="play")
    interface = member.loopback_interface()
    seats = [
        member.Seat(
            address="127.0.0.1", port=port, prefix="play", node=node, local=0, backend="gloo", interface=interface
        )
        for node in range(ranks)
    ]
    module = "seatrial.accept.selftest.saboteur" if sabotage else "seatrial.accept.cluster.member"
    with environment(SEATRIAL_SABOTAGE=json.dumps(list(sabotage))), ExitStack() as stack:
        for seat in seats:
            stack.enter_context(Crew([seat], scratch / "ranks.log", module))
        # The first order waits until everybody has started.
        cluster = RankCluster(board, range(ranks), 1, has_gpus=False, bout_seconds=60.0)
        for round_ in tournament(range(ranks)):
            cluster.play(0, round_, 1)
        inquest = investigate(cluster)
        cluster.end()
    facts = between.BlameFacts(
        hosts=tuple(f"rank {node}" for node in range(ranks)),
        rounds=inquest.rounds,
        culprits=inquest.culprits,
        slow_rails=inquest.slow_rails,
        wrong=tuple(wrong_nodes(cluster.wrong, cluster.played)),
        silent={node: f"left {count} orders unanswered" for node, count in cluster.unanswered.items()},
        excluded={},
        at_scale="",
        rates=tuple(tuple(None if np.isnan(rate) else float(rate) for rate in row) for row in inquest.rate_NN),
    )
    return between.judge_blame(facts, Limits())


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def flipped_bit_in_training(scratch: Path) -> Caught:
    """Among three ranks, so that two outvote the third."""
    facts = replay.replay_on(3, (), flipped_bit.flipping, 120.0)
    culprit = f"rank {flipped_bit.CULPRIT} trained to other bits in 2 of 2 replays"
    others = tuple(f"rank {rank} trained" for rank in range(3) if rank != flipped_bit.CULPRIT)
    return caught("flipped bit in training", replay.judge_replay(facts, Limits()), PROCESS, culprit, innocent=others)


NODES, CUT, DEAD, SKEWED = 4, 2, 2, 1


def cut_link(scratch: Path) -> Caught:
    log = scratch / "cut_link.log"
    argv = ["unshare", "-rn", sys.executable, "-m", "seatrial.accept.selftest.cut_link", str(log)]
    how, silent = RECORDED, {CUT: 3}
    if run(["unshare", "-rn", "true"], timeout_seconds=20).ok:
        played = run(argv, timeout_seconds=180)
        how = NAMESPACE
        silent = {int(node): int(count) for node, count in (line.split() for line in played.stdout.splitlines())}
    facts = between.BlameFacts(
        hosts=tuple(f"node {node}" for node in range(NODES)),
        rounds=4,
        culprits=(),
        slow_rails={},
        wrong=(),
        silent={node: f"left {count} orders unanswered" for node, count in silent.items()},
        excluded={},
        at_scale="",
        rates=((1.0,),),
    )
    others = tuple(f"node {node}:" for node in range(NODES) if node != CUT)
    return caught("cut link", between.judge_blame(facts, Limits()), how, f"node {CUT}: left", innocent=others)


@dataclass(frozen=True)
class NodesRun:
    """What node 0 concluded about nodes of which one was killed and one has a wrong clock."""

    acceptance: Acceptance

    def of(self, check: str) -> Judgement:
        found = next(result for result in self.acceptance.checks if result.check == check)
        return Judgement(found.verdict, found.reason)


def run_nodes(scratch: Path) -> NodesRun:
    """Four nodes that are processes here; one dies in the middle of its ladder, another's clock is five seconds off."""
    out, port = scratch / "nodes", free_port()
    out.mkdir()
    leaders = []
    for node in range(NODES):
        given = {
            "node": node,
            "nodes": NODES,
            "port": port,
            "out": str(out),
            "clock_seconds": 5.0 if node == SKEWED else 0.0,
            "budget_seconds": 30.0 if node == DEAD else 2.0,
        }
        with (out / f"{node}.log").open("ab") as log:
            argv = [sys.executable, "-m", "seatrial.accept.selftest.node", json.dumps(given)]
            leaders.append(subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True))
    try:
        _kill_in_the_middle(leaders[DEAD], out / f"node-{DEAD:05d}" / "facts.jsonl")
        leaders[0].wait(240)
    finally:
        for leader in leaders:
            if leader.poll() is None:
                os.killpg(leader.pid, signal.SIGKILL)
            leader.wait()
    return NodesRun(read_acceptance(out))


def _kill_in_the_middle(leader: "subprocess.Popen[bytes]", facts: Path) -> None:
    """When its first check is done and its longest is under way."""
    end = time.monotonic() + 120
    while time.monotonic() < end and not (facts.exists() and len(facts.read_text().splitlines()) >= 2):
        time.sleep(0.05)
    time.sleep(1.5)
    os.killpg(leader.pid, signal.SIGKILL)


def dead_node(nodes: NodesRun) -> Caught:
    """And those that are left play on, and none of them is blamed."""
    others = tuple(f"node {node} is missing" for node in range(NODES) if node != DEAD)
    judgement = nodes.of("cluster.presence")
    found = caught("dead node", judgement, PROCESS, f"node {DEAD} is missing: last heartbeat", innocent=others)
    left = nodes.of("cluster.blame")
    if left.verdict is Verdict.PASS:
        return found
    return found.model_copy(update={"blamed_right": False, "said": f"{found.said}; and then: {left.reason}"})


def skewed_clock(nodes: NodesRun) -> Caught:
    others = tuple(f"#{node}:" for node in range(NODES) if node != SKEWED)
    judgement = nodes.of("cluster.clock")
    return caught("skewed clock", judgement, PROCESS, f"#{SKEWED}: its clock is +5 s off", innocent=others)


CATALOGUE = (
    Fault("lost GPU", gpu_faults.lost_gpu),
    Fault("ECC events", gpu_faults.ecc_events),
    Fault("degraded PCIe", gpu_faults.degraded_pcie),
    Fault("XID in the kernel log", gpu_faults.xid_in_kernel_log),
    Fault("busy GPU", gpu_faults.busy_gpu),
    Fault("forced sockets", gpu_faults.forced_sockets),
    Fault("small /dev/shm", small_shm),
    Fault("full disk", full_disk),
    Fault("slow disk", slow_disk),
    Fault("flipped bit in training", flipped_bit_in_training),
)
NAMESPACED = ("small /dev/shm", "full disk", "cut link")
"""Real where the kernel lets us have namespaces of our own; recorded elsewhere."""


def self_test() -> Iterator[Caught]:
    """Inject one fault after another, and say what became of each. Never two at once: most are told by rates."""
    with tempfile.TemporaryDirectory(prefix="seatrial-self-test-") as directory:
        for number, fault in enumerate(CATALOGUE):
            scratch = Path(directory) / str(number)
            scratch.mkdir()
            yield _timed(time.monotonic(), fault.inject(scratch))
        start = time.monotonic()
        played = play_ranks(Path(directory), [{"node": LATE, "delay_seconds": 0.1}, {"node": WRONG, "flip": 4321}])
        yield _timed(start, delayed_rank(played))
        yield _timed(start, wrong_result_bit(played))
        start = time.monotonic()
        nodes = run_nodes(Path(directory))
        yield _timed(start, dead_node(nodes))
        yield _timed(start, skewed_clock(nodes))
        yield _timed(time.monotonic(), cut_link(Path(directory)))


def _timed(start: float, found: Caught) -> Caught:
    return found.model_copy(update={"seconds": time.monotonic() - start})
