"""The environment that every target gives a job: what, and why. Kept short: NCCL's own choices are mostly the best.

Nothing sets NCCL_TOPO_FILE: a file of another machine's topology is worse than none. ``job.environment`` may.
"""

from dataclasses import dataclass

from seatrial.launch.job import Job
from seatrial.launch.preflight.node import NEEDS_VARIABLE, Needs


@dataclass(frozen=True)
class Variable:
    """One variable, with the reason that is written beside it."""

    name: str
    value: str
    reason: str


def environment(job: Job) -> tuple[Variable, ...]:
    """In the order in which they are rendered. What ``job.environment`` gives wins, and comes last."""
    chosen = [
        Variable("PYTHONUNBUFFERED", "1", "a process that is killed has written all that it said"),
        *(_nccl(job) if job.gpus_per_node else ()),
        *_threads(job),
        Variable(NEEDS_VARIABLE, Needs.of(job).model_dump_json(exclude_none=True), "looked for before ranks start"),
    ]
    own = [Variable(name, value, "job.environment") for name, value in job.environment.items()]
    return (*(variable for variable in chosen if variable.name not in job.environment), *own)


def _nccl(job: Job) -> list[Variable]:
    debug = Variable("NCCL_DEBUG", "WARN", "says why a connection failed; INFO also says what was chosen")
    match job.fabric:
        case "infiniband":
            return [
                debug,
                Variable("NCCL_IB_HCA", "mlx5", "the InfiniBand adapters, and nothing else that looks like one"),
            ]
        case "ethernet":
            return [
                debug,
                Variable("NCCL_IB_DISABLE", "1", "RDMA devices without a fabric behind them are not tried"),
                Variable("NCCL_SOCKET_NTHREADS", "4", "one TCP stream fills no 100 Gbit/s: 4 threads"),
                Variable("NCCL_NSOCKS_PERTHREAD", "4", "with 4 streams each"),
            ]
        case "none":
            return [debug]


def _threads(job: Job) -> list[Variable]:
    if job.cpus_per_node is None:
        return []
    threads = max(1, job.cpus_per_node // max(1, job.processes))
    return [Variable("OMP_NUM_THREADS", str(threads), "the cores of a node, shared by its processes; torchrun takes 1")]
