"""What only all nodes together can show: collectives over everybody, training on everybody, and who slows the whole."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from seatrial.accept.blame.bisect import Group, bisect
from seatrial.accept.blame.inquest import Inquest
from seatrial.accept.busbw import Collective, busbw_gb_per_s
from seatrial.accept.check import percentile
from seatrial.accept.checks.collectives import RanksFacts
from seatrial.accept.checks.ranks import StepFacts
from seatrial.accept.cluster import checks as between
from seatrial.accept.cluster.conductor import RankCluster
from seatrial.accept.nccl_log import joined
from seatrial.accept.training.rate import Workload
from seatrial.acceptance import STEP_RATE, Acceptance
from seatrial.records import read_jsonl

MIB, GIB = 2**20, 2**30
WHOLE_STEPS: dict[str, tuple[tuple[Collective, int], ...]] = {
    "gloo": (("all_gather", MIB), ("all_reduce", 8), ("all_reduce", MIB)),
    "nccl": (
        *((name, GIB) for name in ("all_gather", "reduce_scatter", "all_to_all")),
        *(("all_reduce", size) for size in (8, MIB, 64 * MIB, GIB)),
    ),
}
SLOW_TOGETHER = 0.5
"""Of what pairs exchange: a ring of all nodes is as fast as its slowest pair, so half of the median is a fault."""
TRAINING_SECONDS = 300.0
"""For all ranks to build the model, compile it and take the steps."""


def over_all(
    cluster: RankCluster, left: Group, backend: str, reports: Mapping[str, Acceptance]
) -> between.WholeFacts | None:
    """Collectives over all ranks of all nodes. ``reports``: of the nodes that are left, by host, in their order."""
    if len(left) < 2:
        return None
    found = cluster.collectives([left], WHOLE_STEPS[backend], 2.0).get(left)
    hosts = dict(zip(left, reports, strict=True))
    gpus = [
        name
        for report in reports.values()
        for name in [part.name for part in report.parts if part.uuid][: cluster.ranks_a_node]
    ]
    facts = RanksFacts(
        backend="nccl" if backend == "nccl" else "gloo",
        ranks=len(left) * cluster.ranks_a_node,
        gpu_names=tuple(gpus) if backend == "nccl" else (),
        steps=found or (),
        choice=joined(list(cluster.chosen.values())),
    )
    by_host = {hosts[node]: choice for node, choice in cluster.chosen.items() if node in hosts}
    ports = {host: rdma_gb_per_s(report) for host, report in reports.items()}
    return between.WholeFacts(ranks=facts, nodes=len(left), by_host=by_host, rdma_gb_per_s=ports)


def rdma_gb_per_s(report: Acceptance) -> tuple[float, ...]:
    """Line rates of a node's active ports, one direction, from what ``fabric.rdma`` measured; none without ports."""
    found = [result for result in report.checks if result.check == "fabric.rdma"]
    return tuple(number.value / 8 for result in found for number in result.measurements if number.name == "port rate")


def train_all(
    cluster: RankCluster, left: Group, reports: Mapping[str, Acceptance], own: Path
) -> between.TrainingFacts | None:
    """The step that every node took by itself, now on all of them; None where none of them did."""
    rates = {host: rate for host, report in reports.items() if (rate := _step_rate(report))}
    asked = next((told for told in read_jsonl(own / "facts.jsonl") if told["check"] == "training.rate"), {})
    if len(left) < 2 or not rates or "facts" not in asked:
        return None
    workload = Workload.model_validate(asked["facts"]["workload"])
    told = cluster.train(left, workload, TRAINING_SECONDS) or {}
    names = [f"{host} rank {local}" for host in reports for local in range(cluster.ranks_a_node)]
    return between.TrainingFacts(
        workload=workload,
        nodes=len(left),
        ranks=len(names),
        seconds=told.get("seconds", ()),
        own_seconds=dict(zip(names, told.get("own_seconds", ()), strict=False)),
        node_seconds={host: workload.pack_tokens / rate for host, rate in rates.items()},
        by_rdma=cluster.has_gpus and all(rdma_gb_per_s(report) for report in reports.values()),
    )


def _step_rate(report: Acceptance) -> float:
    """Tokens a second of a rank in a step of this whole node; 0 where none was taken."""
    rates = {n.name: n.value for r in report.checks if r.check == "training.rate" for n in r.measurements}
    return rates.get("step rate together", rates.get(STEP_RATE, 0.0))


def slow_at_scale(cluster: RankCluster, left: Group, inquest: Inquest, names: Sequence[str]) -> str:
    """Who makes the whole slow where pairs are not; empty when it is not."""
    pairs = [float(rate) for rate in inquest.rate_NN[np.isfinite(inquest.rate_NN)]]
    if len(left) < 4 or not pairs:
        return ""
    floor = SLOW_TOGETHER * percentile(pairs, 50)

    def measure(groups: Sequence[Group]) -> list[bool]:
        found = cluster.collectives(groups, [("all_reduce", GIB)], 1.0)
        return [_busbw(found.get(group, ()), len(group) * cluster.ranks_a_node) < floor for group in groups]

    fault = bisect(left, measure)
    if fault is None:
        return ""
    who = ", ".join(names[node] for node in fault.culprits) or f"nobody alone among {len(fault.group)} nodes"
    return f"together slower than {floor:.3g} GB/s, though pairs are not: {who}; {fault.sound_size} nodes are sound"


def _busbw(steps: Sequence[StepFacts], ranks: int) -> float:
    if not steps:
        return 0.0
    step = steps[-1]
    return busbw_gb_per_s(step.collective, step.size_bytes, percentile(step.seconds, 50), ranks)
