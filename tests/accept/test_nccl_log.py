"""What NCCL chose, read from logs as NCCL writes them, and judged."""

import pytest

from seatrial.accept.nccl_log import joined, judge_networks, judge_transport, read_nccl_log
from seatrial.records import Verdict

NCCL_LOG = """\
NCCL version 2.28.9+cuda13.0
node-1:2211:2298 [0] NCCL INFO NVLS multicast support is not available on dev 0 (NVLS_NCHANNELS 0)
node-1:2211:2298 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM/read
node-1:2212:2299 [1] NCCL INFO Channel 01/0 : 1[1] -> 0[0] via P2P/CUMEM/read
node-1:2211:2211 [0] NCCL INFO AllReduce: 8 Bytes -> Algo RING proto LL channel{Lo..Hi}={0..0}
node-1:2211:2211 [0] NCCL INFO AllReduce: 4294967296 Bytes -> Algo RING proto SIMPLE channel{Lo..Hi}={0..23}
node-1:2211:2211 [0] NCCL INFO AllGather: 131072 Bytes -> Algo RING proto LL128 channel{Lo..Hi}={0..23}
"""
INFINIBAND = """\
node-1:9:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>
node-1:9:9 [0] NCCL INFO Using network IB
node-1:9:9 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA
node-1:9:9 [0] NCCL INFO Channel 01/0 : 0[0] -> 8[0] [send] via NET/IB/1/GDRDMA
"""
SOCKETS = """\
node-1:9:9 [0] NCCL INFO NET/IB : No device found.
node-1:9:9 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>
node-1:9:9 [0] NCCL INFO Using network Socket
node-1:9:9 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0
"""


def test_algorithms_and_transports_of_one_node() -> None:
    choice = read_nccl_log(NCCL_LOG)
    assert choice.transports == ("P2P",)
    assert choice.algorithms == {"AllReduce 8": "RING", "AllReduce 4294967296": "RING", "AllGather 131072": "RING"}
    assert (choice.version, choice.multicast, choice.network) == ("2.28.9+cuda13.0", False, "")
    assert choice.algorithm("all_reduce", 8, 8) == "RING"
    assert choice.algorithm("all_gather", 8 * 131072, 8) == "RING"
    assert choice.algorithm("all_gather", 131073, 8) is None
    assert choice.algorithm("all_to_all", 8, 8) == "P2P"


def test_the_way_out_of_a_node() -> None:
    choice = read_nccl_log(NCCL_LOG + INFINIBAND)
    assert (choice.network, choice.adapters) == ("IB", ("mlx5_0", "mlx5_1"))
    assert (choice.direct_channels, choice.network_channels) == (2, 2)
    fallen_back = read_nccl_log(NCCL_LOG + SOCKETS)
    assert (fallen_back.network, fallen_back.adapters) == ("Socket", ("eth0",))
    assert fallen_back.transports == ("NET/Socket", "P2P")
    nothing = read_nccl_log("")
    assert (nothing.transports, nothing.algorithms, nothing.network, nothing.multicast) == ((), {}, "", None)


@pytest.mark.parametrize(
    ("log", "nodes", "rdma_ports", "verdict", "says"),
    [
        (NCCL_LOG + INFINIBAND, 2, 2, Verdict.PASS, "by IB with GPUDirect RDMA"),
        (NCCL_LOG + SOCKETS, 2, 8, Verdict.FAIL, "fell back to sockets, though 8 RDMA port(s) are active"),
        (NCCL_LOG + SOCKETS, 2, 0, Verdict.WARN, "this node shows no RDMA port"),
        (NCCL_LOG + INFINIBAND.replace("/GDRDMA", ""), 2, 2, Verdict.FAIL, "2 of 2 channels"),
        (NCCL_LOG + INFINIBAND, 2, 8, Verdict.WARN, "NCCL uses 2 of 8 active RDMA ports (mlx5_0, mlx5_1)"),
        (NCCL_LOG, 2, 8, Verdict.INCONCLUSIVE, "does not tell how it left the node"),
        (NCCL_LOG + SOCKETS, 1, 8, Verdict.FAIL, "NCCL went by NET/Socket between GPUs that NVLink connects"),
    ],
)
def test_the_transport_is_judged(log: str, nodes: int, rdma_ports: int, verdict: Verdict, says: str) -> None:
    findings = judge_transport(read_nccl_log(log), nodes=nodes, linked=True, rdma_ports=rdma_ports)
    assert [found for found, _ in findings] == [verdict]
    assert says in findings[0][1]


def test_one_healthy_node_has_nothing_to_say() -> None:
    assert judge_transport(read_nccl_log(NCCL_LOG), nodes=1, linked=True, rdma_ports=8) == []


IB_NODE, SOCKET_NODE = read_nccl_log(NCCL_LOG + INFINIBAND), read_nccl_log(NCCL_LOG + SOCKETS)
PORTS = {"n0": 2, "n1": 2, "n2": 2}


def test_nodes_that_all_leave_by_rdma_pass_in_one_line() -> None:
    found = judge_networks({"n0": IB_NODE, "n1": IB_NODE, "n2": IB_NODE}, linked=True, rdma_ports=PORTS)
    assert found == [(Verdict.PASS, "NCCL leaves 3 nodes by NET/IB with GPUDirect RDMA")]


@pytest.mark.parametrize("ports", [2, 0])
def test_a_node_that_chose_sockets_where_others_chose_infiniband_is_named(ports: int) -> None:
    """Whether it shows ports or lost them: the others prove that there is a fabric."""
    by_host = {"n0": IB_NODE, "n1": SOCKET_NODE, "n2": IB_NODE}
    found = judge_networks(by_host, linked=True, rdma_ports=PORTS | {"n1": ports})
    verdict, text = found[0]
    assert verdict is Verdict.FAIL
    assert text.startswith("n1: NCCL leaves it by NET/Socket, the other nodes by NET/IB")
    assert all(text.startswith("n1: ") for _, text in found)


def test_where_nobody_has_rdma_nobody_is_odd() -> None:
    found = judge_networks(dict.fromkeys(PORTS, SOCKET_NODE), linked=True, rdma_ports={})
    assert [verdict for verdict, _ in found] == [Verdict.WARN] * 3


def test_nodes_that_nvlink_joins_need_no_network() -> None:
    found = judge_networks(dict.fromkeys(PORTS, read_nccl_log(NCCL_LOG)), linked=True, rdma_ports=PORTS)
    assert [verdict for verdict, _ in found] == [Verdict.SKIPPED]


def test_a_log_that_tells_nothing_passes_nobody() -> None:
    silent = read_nccl_log(NCCL_LOG)
    found = judge_networks({"n0": IB_NODE, "n1": silent, "n2": IB_NODE}, linked=True, rdma_ports=PORTS)
    assert [(verdict, text[:3]) for verdict, text in found] == [(Verdict.INCONCLUSIVE, "n1:")]


def test_ranks_of_a_node_are_taken_together() -> None:
    choice = joined([read_nccl_log(NCCL_LOG), IB_NODE, SOCKET_NODE])
    assert choice.transports == ("NET/IB", "NET/Socket", "P2P")
    assert (choice.network, choice.network_channels, choice.direct_channels) == ("IB", 3, 2)
    assert choice.multicast is False and joined([]).multicast is None
