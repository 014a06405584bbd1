"""What a Slurm says of a job before it is submitted: its partition's limits, and its own opinion of the script."""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from seatrial.launch.job import Job
from seatrial.launch.preflight.answer import last_line
from seatrial.launch.preflight.finding import Finding, doubtful, failed, passed
from seatrial.shell import Output

SINFO = ("sinfo", "--noheader", "--format=%P|%a|%l|%D|%T|%G|%c|%m")
"""Partition, availability, time limit, nodes, state, gres, CPUs, MB: a line for each kind and state of node."""
TEST_ONLY = ("sbatch", "--test-only")
"""Reads a script from stdin and says when it would start: account, QOS and every directive are checked, none is run."""

_GONE = ("down", "drain", "fail", "maint", "inval", "unknown", "power", "reserved", "reboot")


@dataclass(frozen=True)
class NodeKind:
    """Alike nodes of a partition. ``time_limit_hours`` None: there is none."""

    partition: str
    is_default: bool
    is_up: bool
    time_limit_hours: float | None
    nodes: int
    state: str
    gpus: int
    cpus: int
    memory_gib: float

    @property
    def is_usable(self) -> bool:
        return not self.state.startswith(_GONE) and not self.state.endswith("*")  # an asterisk: it does not answer


def read_sinfo(text: str) -> tuple[NodeKind, ...]:
    """Lines of :data:`SINFO`."""
    kinds = []
    for line in text.splitlines():
        partition, up, limit, nodes, state, gres, cpus, memory = line.split("|")
        kinds.append(
            NodeKind(
                partition=partition.rstrip("*"),
                is_default=partition.endswith("*"),
                is_up=up == "up",
                time_limit_hours=_hours(limit),
                nodes=int(nodes),
                state=state,
                gpus=sum(int(count) for count in re.findall(r"gpu(?::[^:,()]+)?:(\d+)", gres)),
                cpus=int(cpus.rstrip("+")),
                memory_gib=int(memory.rstrip("+")) / 1024,
            )
        )
    return tuple(kinds)


def _hours(limit: str) -> float | None:
    """Of ``[days-]hours:minutes:seconds``, of which the larger units may be left out; None for infinite."""
    if not re.fullmatch(r"(\d+-)?[\d:]+", limit):
        return None
    days, _, rest = limit.rpartition("-")
    seconds = 0
    for part in rest.split(":"):
        seconds = 60 * seconds + int(part)
    return 24 * int(days or 0) + seconds / 3600


def judge_partition(job: Job, sinfo: Output) -> Iterator[Finding]:
    if not sinfo.ok:
        remedy = "log in where `sinfo` works, usually the cluster's login node, or render with --dry-run"
        yield failed("slurm", last_line(sinfo), remedy)
        return
    kinds = read_sinfo(sinfo.stdout)
    name = job.slurm.partition
    mine = [kind for kind in kinds if kind.partition == name or (name is None and kind.is_default)]
    what = f"partition {mine[0].partition if mine else name}"
    if not mine:
        yield _unknown_partition(what, name, sorted({kind.partition for kind in kinds}))
        return
    if not mine[0].is_up:
        yield failed(what, "is not up, so nothing starts in it", "set job.slurm.partition; `sinfo` lists all")
    yield from _limit(what, job, mine[0])
    yield _nodes(what, job, mine)


def _unknown_partition(what: str, name: str | None, known: Sequence[str]) -> Finding:
    if name is None:
        return failed("partition", "Slurm has no default", f"set job.slurm.partition to one of {', '.join(known)}")
    near = difflib.get_close_matches(name, known, n=1)
    meant = f"did you mean {near[0]}? " if near else ""
    return failed(what, "there is none of this name", f"{meant}set job.slurm.partition to one of {', '.join(known)}")


def _limit(what: str, job: Job, kind: NodeKind) -> Iterator[Finding]:
    limit = kind.time_limit_hours
    if limit is not None and job.time_limit_hours > limit:
        reason = f"lets jobs run for {limit:g} h, job.time_limit_hours is {job.time_limit_hours:g}"
        yield failed(what, reason, f"set job.time_limit_hours to {limit:g}: the job saves, is requeued and goes on")


def _nodes(what: str, job: Job, kinds: Sequence[NodeKind]) -> Finding:
    fitting = [kind for kind in kinds if not _too_small(job, kind)]
    count = sum(kind.nodes for kind in fitting)
    if count < job.nodes:
        most = max(kinds, key=lambda kind: (kind.gpus, kind.memory_gib))
        has = f"its nodes have up to {most.gpus} GPUs, {most.cpus} CPUs, {most.memory_gib:.0f} GiB"
        reason = f"has {count} nodes that are large enough, job.nodes is {job.nodes}; {has}"
        return failed(what, reason, "lower job.nodes, gpus_per_node, cpus_per_node or memory_gib, or change partition")
    usable = sum(kind.nodes for kind in fitting if kind.is_usable)
    if usable < job.nodes:
        reason = f"{usable} of {count} nodes can be used now, job.nodes is {job.nodes}: the job will wait"
        return doubtful(what, reason, "`sinfo --list-reasons` says why nodes are down or drained")
    return passed(what, f"has {usable} nodes in service that are large enough")


def _too_small(job: Job, kind: NodeKind) -> bool:
    return (
        kind.gpus < job.gpus_per_node or kind.cpus < (job.cpus_per_node or 0) or kind.memory_gib < (job.memory_gib or 0)
    )


def judge_script(answer: Output) -> Finding:
    """``answer``: to :data:`TEST_ONLY`, of the script that would be submitted."""
    said = last_line(answer).removeprefix("sbatch: ")
    if answer.ok:
        return passed("sbatch --test-only", said)
    remedy = "`sinfo`, `sacctmgr show associations user=$USER` and `scontrol show config` say what there is"
    return failed("sbatch --test-only", said, remedy)
