"""What NCCL really chose, read from its own log, and whether that is what the machine is made for. Pure.

``NCCL_DEBUG=INFO`` with ``NCCL_DEBUG_SUBSYS=INIT,NET,TUNING`` says it all.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence

from seatrial.accept.busbw import Collective
from seatrial.accept.check import Finding
from seatrial.accept.facts import Facts
from seatrial.records import Verdict

SUBSYSTEMS = "INIT,NET,TUNING"
FUNCTIONS: dict[Collective, str] = {
    "all_reduce": "AllReduce",
    "all_gather": "AllGather",
    "reduce_scatter": "ReduceScatter",
    "broadcast": "Broadcast",
}
"""Those for which NCCL chooses an algorithm; the others are sends and receives."""


class NcclChoice(Facts):
    """``transports`` between ranks; ``algorithms`` by function and bytes; ``network`` by which it leaves the node.

    ``adapters``: network ports it uses; ``direct``: channels with and without GPUDirect RDMA; ``multicast``: whether
    the NVLink switches reduce, None where the log does not say.
    """

    transports: tuple[str, ...]
    algorithms: dict[str, str]
    version: str
    network: str
    adapters: tuple[str, ...]
    direct_channels: int
    network_channels: int
    multicast: bool | None

    def algorithm(self, collective: Collective, size_bytes: int, ranks: int) -> str | None:
        """NCCL's word for how it did this; for gathers and scatters its log counts the bytes of one rank's share."""
        function = FUNCTIONS.get(collective)
        if function is None:
            return "P2P"
        found = self.algorithms.get(f"{function} {size_bytes}")
        return found or self.algorithms.get(f"{function} {size_bytes // ranks}")


def read_nccl_log(log: str) -> NcclChoice:
    """``... via P2P/CUMEM/read`` of each channel, ``AllReduce: 4096 Bytes -> Algo RING proto LL ...``, and the rest."""
    ways = re.findall(r"Channel \d+(?:/\d+)? : .* via (\S+)", log)
    chosen = re.findall(r"(\w+): (\d+) Bytes -> Algo (\w+) proto \w+", log)
    across = [way for way in ways if way.startswith("NET/")]
    network = re.findall(r"Using network (.+)", log) or re.findall(r"NET/(\w+) : Using \[0\]", log)
    using = re.findall(r"NET/\w+ : Using (\[0\].*)", log)
    adapters = sorted({name for line in using for name in re.findall(r"\[\d+\]([\w.-]+)", line)})
    multicast = re.findall(r"NVLS multicast support is (not )?available", log)
    version = re.search(r"NCCL version (\S+)", log)
    return NcclChoice(
        transports=tuple(sorted({_transport(way) for way in ways})),
        algorithms={f"{function} {size}": algorithm.upper() for function, size, algorithm in chosen},
        version=version[1] if version else "",
        network=network[0].strip() if network else "",
        adapters=tuple(adapters),
        direct_channels=sum("GDRDMA" in way for way in across),
        network_channels=len(across),
        multicast=all(not absent for absent in multicast) if multicast else None,
    )


def _transport(way: str) -> str:
    """``NET/IB/0/GDRDMA`` is ``NET/IB``; ``P2P/CUMEM/read`` is ``P2P``."""
    parts = way.split("/")
    return "/".join(parts[:2]) if parts[0] == "NET" else parts[0]


def judge_transport(choice: NcclChoice, *, nodes: int, linked: bool, rdma_ports: int) -> list[Finding]:
    """``linked``: NVLink joins the GPUs of a node; ``rdma_ports``: active ones of a node.

    A silent fall-back to sockets costs nine tenths of the bandwidth, so it fails with that reason, whatever was
    measured.
    """
    findings: list[Finding] = []
    inside = [transport for transport in choice.transports if transport not in ("P2P", "NVLS", "NVLSTree")]
    detours = [transport for transport in inside if nodes == 1 or not transport.startswith("NET/")]
    if linked and detours:
        findings.append((Verdict.FAIL, f"NCCL went by {' and '.join(detours)} between GPUs that NVLink connects"))
    if nodes == 1:
        return findings
    if not choice.network_channels:
        return [*findings, (Verdict.INCONCLUSIVE, "NCCL's log does not tell how it left the node")]
    if "NET/Socket" in choice.transports:
        if rdma_ports:
            text = f"NCCL fell back to sockets, though {rdma_ports} RDMA port(s) are active"
            return [*findings, (Verdict.FAIL, f"{text}: see NCCL_IB_HCA, the container's /dev/infiniband and memlock")]
        return [*findings, (Verdict.WARN, "NCCL goes by sockets: this node shows no RDMA port")]
    if choice.direct_channels < choice.network_channels:
        some = f"{choice.network_channels - choice.direct_channels} of {choice.network_channels} channels"
        text = f"{some} to other nodes go without GPUDirect RDMA: load nvidia-peermem, or allow dma-buf"
        findings.append((Verdict.FAIL if linked else Verdict.WARN, text))
    if rdma_ports and len(choice.adapters) < rdma_ports:
        used = f"NCCL uses {len(choice.adapters)} of {rdma_ports} active RDMA ports ({', '.join(choice.adapters)})"
        findings.append((Verdict.WARN, f"{used}: the others may be for storage, or left out by NCCL_IB_HCA"))
    return findings or [(Verdict.PASS, f"NCCL leaves the node by {choice.network or 'RDMA'} with GPUDirect RDMA")]


def joined(choices: Sequence[NcclChoice]) -> NcclChoice:
    """What all ranks of a node chose."""
    told = [choice.multicast for choice in choices if choice.multicast is not None]
    return NcclChoice(
        transports=tuple(sorted({way for choice in choices for way in choice.transports})),
        algorithms={name: algorithm for choice in choices for name, algorithm in choice.algorithms.items()},
        version=next((choice.version for choice in choices if choice.version), ""),
        network=next((choice.network for choice in choices if choice.network), ""),
        adapters=tuple(sorted({name for choice in choices for name in choice.adapters})),
        direct_channels=sum(choice.direct_channels for choice in choices),
        network_channels=sum(choice.network_channels for choice in choices),
        multicast=all(told) if told else None,
    )


def judge_networks(by_host: Mapping[str, NcclChoice], *, linked: bool, rdma_ports: Mapping[str, int]) -> list[Finding]:
    """How each node left for the others. One that goes another way than most is named, whatever is usual here."""
    findings: list[Finding] = []
    ways = {host: _way(choice) for host, choice in by_host.items()}
    if by_host and all(not ways[host] and "P2P" in choice.transports for host, choice in by_host.items()):
        return [(Verdict.SKIPPED, "nodes reach each other's GPUs: NVLink joins them, or they are one machine")]
    votes = Counter(way for way in ways.values() if way)
    agreed, count = votes.most_common(1)[0] if votes else ("", 0)
    for host, way in ways.items():
        if way and way != agreed and count * 2 > len(ways):
            told = f"{host}: NCCL leaves it by {way}, the other nodes by {agreed}"
            findings.append((Verdict.FAIL, f"{told}: see NCCL_IB_HCA and /dev/infiniband there"))
    for host, choice in by_host.items():
        judged = judge_transport(choice, nodes=len(by_host), linked=linked, rdma_ports=rdma_ports.get(host, 0))
        findings += [(verdict, f"{host}: {text}") for verdict, text in judged if verdict is not Verdict.PASS]
    if by_host and not findings:
        findings.append((Verdict.PASS, f"NCCL leaves {len(by_host)} nodes by {agreed or 'RDMA'} with GPUDirect RDMA"))
    return findings


def _way(choice: NcclChoice) -> str:
    """``NET/IB``, or both ways where channels differ; empty where the log does not tell."""
    return " and ".join(way for way in choice.transports if way.startswith("NET/"))
