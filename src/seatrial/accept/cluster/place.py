"""Which of how many nodes this is, as torchrun or srun tell it in the environment. Pure but for reading host lists."""

from collections.abc import Mapping
from dataclasses import dataclass

from seatrial.errors import UsageError
from seatrial.shell import run

PORTS = range(20_000, 30_000)
"""Where nodes of a Slurm job meet, by the number of the job, so that jobs of one node do not collide."""


@dataclass(frozen=True)
class Place:
    """``leads``: of several processes on a node, the one that does the work. ``hosts_store``: nobody else keeps a
    store at ``address``, so node 0 must."""

    node: int
    nodes: int
    leads: bool
    address: str
    port: int
    hosts_store: bool


def find_place(env: Mapping[str, str]) -> Place | None:
    """None on one machine alone, with no launcher.

    Raises:
        UsageError: a launcher speaks, but not of everything.
    """
    try:
        if "LOCAL_WORLD_SIZE" in env:
            return _of_torchrun(env)
        if int(env.get("SLURM_NTASKS", 1)) > 1 and "SLURM_PROCID" in env:
            return _of_srun(env)
    except KeyError as error:
        raise UsageError(
            f"{error.args[0]} is not set, though other variables of a launcher are: start with srun or torchrun"
        ) from error
    return None


def _of_torchrun(env: Mapping[str, str]) -> Place | None:
    local, world = int(env["LOCAL_WORLD_SIZE"]), int(env["WORLD_SIZE"])
    nodes, node = world // local, int(env["RANK"]) // local
    leads = int(env["LOCAL_RANK"]) == 0
    own_store = env.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    return Place(
        node=node,
        nodes=nodes,
        leads=leads,
        address=env["MASTER_ADDR"],
        port=int(env["MASTER_PORT"]),
        hosts_store=own_store and node == 0 and leads,
    )


def _of_srun(env: Mapping[str, str]) -> Place | None:
    node, nodes = int(env["SLURM_NODEID"]), int(env["SLURM_NNODES"])
    leads = int(env["SLURM_LOCALID"]) == 0
    port = int(env.get("MASTER_PORT", PORTS[int(env["SLURM_JOB_ID"]) % len(PORTS)]))
    address = env.get("MASTER_ADDR") or first_host(env["SLURM_STEP_NODELIST"])
    return Place(node=node, nodes=nodes, leads=leads, address=address, port=port, hosts_store=node == 0 and leads)


def first_host(nodelist: str) -> str:
    """The first of ``gpu-[003-006,9],login``: ``gpu-003``. Slurm's own tool where it is there, else by its grammar."""
    listed = run(["scontrol", "show", "hostnames", nodelist], timeout_seconds=10)
    if listed.ok and listed.stdout.strip():
        return listed.stdout.split()[0]
    prefix, bracket, rest = nodelist.partition("[")
    if not bracket or "," in prefix:
        return nodelist.partition(",")[0]
    inside, _, suffix = rest.partition("]")
    return prefix + inside.partition(",")[0].partition("-")[0] + suffix.partition(",")[0]
