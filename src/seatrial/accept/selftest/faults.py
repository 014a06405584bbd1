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
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from seatrial.accept.blame.inquest import investigate
from seatrial.accept.blame.plan import tournament
from seatrial.accept.catalogue import find
from seatrial.accept.check import Judgement, Request, judge_recorded
from seatrial.accept.checks.ranks import run_on_ranks
from seatrial.accept.cluster import checks as between
from seatrial.accept.cluster import member
from seatrial.accept.cluster.board import Board
from seatrial.accept.cluster.conductor import RankCluster, wrong_nodes
from seatrial.accept.cluster.crew import Crew
from seatrial.accept.gpu_kinds import GpuKind, kind_of
from seatrial.accept.inventory import take_inventory
from seatrial.accept.limits import Limits
from seatrial.accept.nccl_log import judge_transport, read_nccl_log
from seatrial.accept.runner import Worker
from seatrial.accept.selftest import flipped_bit
from seatrial.accept.training import replay
from seatrial.acceptance import Acceptance, read_acceptance
from seatrial.records import Frozen, JsonObject, Verdict
from seatrial.shell import run

RECORDED, PROCESS, NAMESPACE = "recorded", "process", "namespace"
SAYS_NO = (Verdict.FAIL, Verdict.WARN)


class Caught(Frozen):
    """``caught``: the verdict is no PASS; ``blamed_right``: the reason names the culprit, and nobody else."""

    name: str
    caught: bool
    blamed_right: bool
    how: str
    verdict: str
    said: str
    seconds: float = 0.0


@dataclass(frozen=True)
class Fault:
    name: str
    inject: Callable[[Path], Caught]


def caught(name: str, judgement: Judgement, how: str, *names: str, innocent: Sequence[str] = ()) -> Caught:
    """Whether a judgement says no, and names the culprit by all of ``names`` and none of ``innocent``."""
    said = judgement.reason
    right = all(word in said for word in names) and not any(word in said for word in innocent)
    return Caught(
        name=name,
        caught=judgement.verdict in SAYS_NO,
        blamed_right=judgement.verdict in SAYS_NO and right,
        how=how,
        verdict=judgement.verdict,
        said=said,
    )


def recorded(check: str) -> Any:
    """Facts of a healthy H100, as JSON that may be changed."""
    lines = files("seatrial").joinpath("assets/accept/h100.jsonl").read_text().splitlines()
    return next(record["facts"] for record in map(json.loads, lines) if record["check"] == check)


def judged(check: str, facts: JsonObject) -> Judgement:
    return judge_recorded(find(check), facts, Limits())


def lost_gpu(scratch: Path) -> Caught:
    facts = recorded("gpu.inventory")
    facts["state"]["gpus"] = []
    facts["state"]["silent"] = {"0": "GPU is lost"}
    facts["torch_gpus"] = 0
    return caught("lost GPU", judged("gpu.inventory", facts), RECORDED, "GPU 0 does not answer", "GPU is lost")


def ecc_events(scratch: Path) -> Caught:
    facts = recorded("gpu.memory_health")
    facts["state"]["gpus"][0] |= {"uncorrected_since_boot": 2, "row_remap_pending": True}
    return caught("ECC events", judged("gpu.memory_health", facts), RECORDED, "GPU 0", "2 uncorrected memory errors")


def degraded_pcie(scratch: Path) -> Caught:
    facts = recorded("gpu.pcie")
    (gpu,) = facts["gpus"]
    gpu["load"]["pcie_generation"] = [3 for _ in gpu["load"]["pcie_generation"]]
    for direction in ("host_to_device_gb_per_s", "device_to_host_gb_per_s"):
        gpu[direction] = [rate / 4.4 for rate in gpu[direction]]
    return caught("degraded PCIe", judged("gpu.pcie", facts), RECORDED, "GPU 0", "PCIe Gen3 x16 under load")


def xid_in_kernel_log(scratch: Path) -> Caught:
    facts = {"xids": [["0000:3b:00", 79]], "reason": ""}
    return caught("XID in the kernel log", judged("gpu.kernel_log", facts), RECORDED, "0000:3b:00", "fell off the bus")


def busy_gpu(scratch: Path) -> Caught:
    """Another job multiplies on the last GPU while all are measured."""
    name, check, gpus = "busy GPU", "gpu.gemm_bf16", len(_known_gpus())
    if not gpus:
        facts = recorded(check)
        (gpu,) = facts["gpus"]
        slowed = {**gpu, "gpu": {**gpu["gpu"], "index": 1}, "tflop_per_s": [rate / 2 for rate in gpu["tflop_per_s"]]}
        facts["gpus"] = [gpu, slowed]
        return caught(name, judged(check, facts), RECORDED, "GPU 1 (", innocent=("GPU 0 (",))
    culprit = gpus - 1
    with _kept_busy(culprit), Worker(scratch / "busy_gpu.log") as worker:
        answer = worker.ask(Request(check=check, seconds=3.0, directory=scratch), 120)
    others = tuple(f"GPU {index} (" for index in range(culprit))
    return caught(name, judged(check, answer.get("facts", {})), PROCESS, f"GPU {culprit} (", innocent=others)


def _known_gpus() -> tuple[GpuKind, ...]:
    """Of the GPUs to be tested, where limits are known for all: without, slow ones are shown, and no fault."""
    here = take_inventory()
    kinds = tuple(kind for name in here.listed[: here.gpus] if (kind := kind_of(name)) is not None)
    return kinds if len(kinds) == here.gpus else ()


@contextmanager
def _kept_busy(gpu: int) -> Iterator[None]:
    argv = [sys.executable, "-m", "seatrial.accept.selftest.busy_gpu", str(gpu)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as job:
        try:
            assert job.stdout is not None
            job.stdout.readline()  # it has begun, or ended at once
            yield
        finally:
            job.kill()


def forced_sockets(scratch: Path) -> Caught:
    """NCCL is forbidden to reach GPUs that NVLink joins by it, or through shared memory."""
    name, kinds = "forced sockets", _known_gpus()
    if len(kinds) > 1 and all(kind.nvlinks > 0 and not kind.bridged for kind in kinds):
        with _environment(NCCL_P2P_DISABLE="1", NCCL_SHM_DISABLE="1"):
            _, choice = run_on_ranks("nccl", len(kinds), [("all_reduce", 2**20)], 1.0)
        findings = judge_transport(choice, nodes=1, linked=True, rdma_ports=0)
        verdict, text = findings[0] if findings else (Verdict.PASS, "nothing noticed")
        return caught(name, Judgement(verdict, text), PROCESS, "went by NET/Socket between GPUs that NVLink connects")
    log = files("seatrial").joinpath("assets/accept/nccl-sockets.log").read_text()
    verdict, text = judge_transport(read_nccl_log(log), nodes=2, linked=True, rdma_ports=8)[0]
    return caught(name, Judgement(verdict, text), RECORDED, "fell back to sockets", "8 RDMA port(s)")


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
    with _environment(SEATRIAL_SABOTAGE=json.dumps(list(sabotage))), ExitStack() as stack:
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


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


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
    Fault("lost GPU", lost_gpu),
    Fault("ECC events", ecc_events),
    Fault("degraded PCIe", degraded_pcie),
    Fault("XID in the kernel log", xid_in_kernel_log),
    Fault("busy GPU", busy_gpu),
    Fault("forced sockets", forced_sockets),
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
