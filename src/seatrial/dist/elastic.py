"""torchrun for nodes that may leave and come back. The default is another: as many nodes as were asked for, or none."""

from collections.abc import Sequence

RENDEZVOUS = {
    "join_timeout": 600,
    "last_call_timeout": 5,
    "keep_alive_interval": 2,
    "keep_alive_max_attempt": 3,
}
"""``last_call_timeout``: how long nodes wait for one more once enough are there; torch's 30 s are added to every
restart. ``keep_alive_*``: a node that is silent for 6 s has left; torch waits 15 s. ``read_timeout`` must stay at
torch's 60 s: with 5 s the ranks of a new round were not agreed on."""

ENVIRONMENT = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
"""Without it a node that comes back waits for keys that the first node, which remembers its old round, never writes,
and all nodes die of it (torch 2.13)."""


def elastic_torchrun(
    *,
    least_nodes: int,
    most_nodes: int,
    processes: int,
    endpoint: str,
    job: str,
    restarts: int,
    hosts_store: bool | None,
) -> list[str]:
    """What each node runs, before ``-m seatrial train CONFIG``; :data:`ENVIRONMENT` belongs to it.

    Batches, their order and so the curve do not depend on how many nodes are there.

    Args:
        processes: of each node, one to a GPU.
        endpoint: HOST:PORT of the rendezvous. When this host dies all nodes do, and the scheduler must start them
            again; a host that does not train (a head node) makes all that do replaceable.
        job: a name that no other job at this endpoint has.
        restarts: how often a node starts its ranks again after a failure. Nodes that leave or come do not count.
        hosts_store: whether this node serves the rendezvous; None: torchrun finds out.
    """
    conf: Sequence[str] = [f"{name}={value}" for name, value in RENDEZVOUS.items()]
    if hosts_store is not None:
        conf = [f"is_host={int(hosts_store)}", *conf]
    return [
        "torchrun",
        f"--nnodes={least_nodes}:{most_nodes}",
        f"--nproc-per-node={processes}",
        "--rdzv-backend=c10d",
        f"--rdzv-endpoint={endpoint}",
        f"--rdzv-id={job}",
        f"--rdzv-conf={','.join(conf)}",
        f"--max-restarts={restarts}",
    ]
