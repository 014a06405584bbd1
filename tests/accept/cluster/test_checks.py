"""The judges of what lies between nodes, on healthy and broken facts."""

from collections import Counter
from typing import Any

import pytest

from seatrial.accept.catalogue import find
from seatrial.accept.check import judge_recorded
from seatrial.accept.cluster.checks import BlameFacts, fleet_rates, merged, placed_parts
from seatrial.accept.cluster.conductor import wrong_nodes
from seatrial.accept.cluster.run import node_grades, unique_hosts
from seatrial.accept.limits import Limits
from seatrial.acceptance import Acceptance, Part
from seatrial.records import CheckResult, Measurement, Verdict

SAME = {"driver": "580", "kernel": "6.8", "GPUs": "8 x H200"}
BLAME: dict[str, Any] = {
    "hosts": ["n0", "n1", "n2"],
    "rounds": 3,
    "culprits": [],
    "slow_rails": {},
    "wrong": [],
    "silent": {},
    "excluded": {},
    "at_scale": "",
    "rates": [[None, 40.0, 40.0], [40.0, None, 40.0], [40.0, 40.0, None]],
}
CULPRIT = {"kind": "bad cable", "node": 1, "part": "rail 3", "loss": 0.4, "evidence": ["40% slower"]}
STEP = {"collective": "all_reduce", "size_bytes": 8, "seconds": [1e-3] * 5, "wrong": 0}
RANKS = {
    "backend": "gloo",
    "ranks": 3,
    "gpu_names": [],
    "steps": [STEP],
    "choice": {
        "transports": [],
        "algorithms": {},
        "version": "",
        "network": "",
        "adapters": [],
        "direct_channels": 0,
        "network_channels": 0,
        "multicast": None,
    },
}

WHOLE: dict[str, Any] = {"nodes": 3, "ranks": RANKS, "by_host": {}, "rdma_gb_per_s": {}}
IB: dict[str, Any] = RANKS["choice"] | {  # type: ignore[operator]
    "transports": ["NET/IB", "P2P"],
    "algorithms": {"AllReduce 1073741824": "RING"},
    "network": "IB",
    "adapters": [f"mlx5_{index}" for index in range(8)],
    "direct_channels": 16,
    "network_channels": 16,
}
"""As a node with eight NDR ports tells it."""


def h200s(busbw_gb_per_s: float) -> dict[str, Any]:
    """Two nodes of eight H200s, an all-reduce of 1 GiB over all of them."""
    seconds = 2**30 / (busbw_gb_per_s * 1e9) * 2 * 15 / 16
    step = {"collective": "all_reduce", "size_bytes": 2**30, "seconds": [seconds] * 5, "wrong": 0}
    ranks = {"backend": "nccl", "ranks": 16, "gpu_names": ["NVIDIA H200"] * 16, "steps": [step], "choice": IB}
    rates = {"n0": [50.0] * 8, "n1": [50.0] * 8}
    return {"nodes": 2, "ranks": ranks, "by_host": {"n0": IB, "n1": IB}, "rdma_gb_per_s": rates}


H200S = h200s(340.0)
TRAINING: dict[str, Any] = {
    "workload": {
        "shape": "llama-3.1-8b",
        "base": "fp8",
        "compute": "bfloat16",
        "rank": 64,
        "length": 4096,
        "rows": 2,
        "steps": 5,
    },
    "nodes": 4,
    "ranks": 32,
    "seconds": [0.388] * 5,
    "own_seconds": {f"n{node} rank 0": 0.373 for node in range(4)},
    "node_seconds": {f"n{node}": 0.378 for node in range(4)},
    "by_rdma": True,
}

CASES = [
    ("presence", {"nodes": 2, "present": {0: "a", 1: "b"}, "missing": {}}, Verdict.PASS, "2 nodes answered"),
    (
        "presence",
        {"nodes": 2, "present": {0: "a"}, "missing": {1: "last heartbeat 43 s ago, during gpu.gemm_bf16"}},
        Verdict.FAIL,
        "node 1 is missing: last heartbeat 43 s ago, during gpu.gemm_bf16",
    ),
    ("presence", {"nodes": 3, "present": {0: "a"}, "missing": {}}, Verdict.INCONCLUSIVE, "1 of 3"),
    ("fingerprint", {"prints": {"a": SAME, "b": SAME, "c": SAME}}, Verdict.PASS, "3 properties equal on 3 nodes"),
    ("fingerprint", {"prints": {"a": SAME}}, Verdict.INCONCLUSIVE, "nothing to compare"),
    (
        "fingerprint",
        {"prints": {"a": SAME, "b": SAME | {"driver": "570"}, "c": SAME}},
        Verdict.FAIL,
        "b: driver is 570, but 580 on 2 of 3",
    ),
    (
        "fingerprint",
        {"prints": {"a": SAME, "b": SAME | {"kernel": "5.15"}, "c": SAME}},
        Verdict.WARN,
        "b: kernel is 5.15",
    ),
    (
        "fingerprint",
        {"prints": {"a": SAME, "b": SAME | {"driver": "570"}}},
        Verdict.FAIL,
        "no majority says which is right",
    ),
    ("names", {"unresolved": {"a": [], "b": [], "c": []}}, Verdict.PASS, "3 nodes resolve"),
    ("names", {"unresolved": {"a": ["c"], "b": ["c"], "c": []}}, Verdict.FAIL, "no other node resolves c"),
    ("names", {"unresolved": {"a": ["b", "c"], "b": [], "c": []}}, Verdict.FAIL, "a cannot resolve b, c (2 of 2)"),
    ("clock", {"offsets": {"a": [0, 0], "b": [0.002, 0.001], "c": [0, 0]}}, Verdict.PASS, "3 clocks within 0.002 s"),
    ("clock", {"offsets": {"a": [0, 0], "b": [-5.0, 0.001], "c": [0, 0]}}, Verdict.FAIL, "b: its clock is -5 s off"),
    ("clock", {"offsets": {"a": [0, 0], "b": [5.0, 0.1], "c": [5.0, 0.1]}}, Verdict.FAIL, "a: its clock is -5 s"),
    ("clock", {"offsets": {"a": [0, 0], "b": [0.3, 0.001], "c": [0, 0]}}, Verdict.WARN, "b: its clock is +0.3 s"),
    ("clock", {"offsets": {"a": [0, 0], "b": [2.0, 3.0], "c": [0, 0]}}, Verdict.PASS, "3 clocks"),
    ("fleet", {"rates": {}}, Verdict.SKIPPED, "no check measured a rate"),
    ("fleet", {"rates": {"GEMM": {"a": 680, "b": 678, "c": 600, "d": 682}}}, Verdict.WARN, "c: GEMM 11.5% below"),
    ("fleet", {"rates": {"GEMM": {"a": 680, "b": 678, "c": 670, "d": 682}}}, Verdict.PASS, "no part of 1 kinds"),
    ("blame", BLAME, Verdict.PASS, "3 nodes, 3 rounds: nobody"),
    ("blame", BLAME | {"culprits": [CULPRIT]}, Verdict.FAIL, "n1, rail 3: bad cable: 40% slower"),
    ("blame", BLAME | {"wrong": [2]}, Verdict.FAIL, "n2: its sums are wrong"),
    ("blame", BLAME | {"silent": {1: "left 3 orders"}, "culprits": [CULPRIT]}, Verdict.FAIL, "n1: left 3 orders"),
    ("blame", BLAME | {"slow_rails": {3: 0.4}}, Verdict.WARN, "rail 3 is 40% slower"),
    ("blame", BLAME | {"excluded": {"n9": "gpu.idle: busy"}}, Verdict.PASS, "n9 did not play: gpu.idle: busy"),
    ("blame", BLAME | {"at_scale": "together slower"}, Verdict.FAIL, "together slower"),
    ("blame", BLAME | {"rounds": 0}, Verdict.INCONCLUSIVE, "tell nothing"),
    ("blame", BLAME | {"rates": [[None]]}, Verdict.INCONCLUSIVE, "no pair of nodes exchanged anything"),
    ("collectives", WHOLE, Verdict.PASS, "exact over 3 gloo ranks"),
    ("collectives", WHOLE | {"ranks": RANKS | {"steps": [STEP | {"wrong": 3}]}}, Verdict.FAIL, "3 elements are"),
    ("collectives", WHOLE | {"ranks": RANKS | {"steps": []}}, Verdict.INCONCLUSIVE, "answer nothing"),
    ("collectives", H200S, Verdict.PASS, "NCCL leaves 2 nodes by NET/IB"),
    ("collectives", h200s(150.0), Verdict.FAIL, "16 GPUs, RING: all-reduce busbw by RING, 16 x H200 SXM, 2 nodes"),
    ("collectives", h200s(450.0), Verdict.INCONCLUSIVE, "physical bound of 400"),
    ("collectives", H200S | {"rdma_gb_per_s": {"n0": [50.0] * 8, "n1": [50.0] * 4}}, Verdict.INCONCLUSIVE, "bound of"),
    (
        "collectives",
        H200S | {"by_host": {"n0": IB, "n1": IB, "n2": IB | {"transports": ["NET/Socket"]}}},
        Verdict.FAIL,
        "n2: NCCL leaves it by NET/Socket, the other nodes by NET/IB",
    ),
    ("training", TRAINING, Verdict.PASS, "32 ranks of 4 nodes train at 97.4% of a node's rate"),
    ("training", TRAINING | {"seconds": [0.48] * 5}, Verdict.FAIL, "0.7875 1 is below the floor of 0.8"),
    ("training", TRAINING | {"seconds": [0.48] * 5, "by_rdma": False}, Verdict.PASS, "recorded, not judged: no RDMA"),
    (
        "training",
        TRAINING | {"own_seconds": {"n0 rank 0": 1.0, "n1 rank 0": 1.1, "n2 rank 0": 1.0}},
        Verdict.WARN,
        "n1",
    ),
    ("training", TRAINING | {"seconds": []}, Verdict.INCONCLUSIVE, "0 steps over 4 node(s)"),
    ("training", TRAINING | {"node_seconds": {}}, Verdict.INCONCLUSIVE, "of which 0 told theirs"),
]


@pytest.mark.parametrize(("check", "facts", "verdict", "says"), CASES)
def test_judges(check: str, facts: dict[str, Any], verdict: Verdict, says: str) -> None:
    judgement = judge_recorded(find(f"cluster.{check}"), facts, Limits())
    assert judgement.verdict is verdict, judgement.reason
    assert says in judgement.reason


def test_a_node_is_blamed_for_wrong_sums_when_most_partners_saw_them() -> None:
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    played = Counter(dict.fromkeys(pairs, 4))
    wrong = Counter({(0, 1): 1, (1, 2): 1, (1, 3): 1})
    assert wrong_nodes(wrong, played) == [1]
    assert wrong_nodes(Counter(), played) == []


def result(check: str, verdict: Verdict, value: float) -> CheckResult:
    number = Measurement(name="GEMM", value=value, unit="TFLOP/s", n=9, spread=1.0, where="GPU 0 (x)")
    return CheckResult(check=check, question="?", verdict=verdict, reason=f"{value:g}", measurements=(number,))


def test_results_of_nodes_become_one_with_the_gravest_verdict_and_its_hosts() -> None:
    nodes = {
        "a": [result("gpu.gemm", Verdict.PASS, 680.0), result("gpu.pcie", Verdict.PASS, 55.0)],
        "b": [result("gpu.gemm", Verdict.FAIL, 400.0), result("gpu.pcie", Verdict.PASS, 54.0)],
    }
    gemm, pcie = merged(nodes)
    assert (gemm.verdict, gemm.reason) == (Verdict.FAIL, "b: 400")
    assert [number.where for number in gemm.measurements] == ["a GPU 0 (x)", "b GPU 0 (x)"]
    assert pcie.verdict is Verdict.PASS and pcie.reason.startswith("2 nodes pass; a: 55")
    assert fleet_rates(nodes)["GEMM, gpu.gemm"] == {"a GPU 0 (x)": 680.0, "b GPU 0 (x)": 400.0}
    (part,) = placed_parts({"b": [Part(where="GPU 0 (x)", name="H200", serial="1")]})
    assert part.where == "b GPU 0 (x)"


def test_nodes_of_one_name_are_told_apart() -> None:
    assert unique_hosts({0: "vm", 1: "vm", 2: "gpu-9", 3: ""}) == {0: "vm#0", 1: "vm#1", 2: "gpu-9", 3: "node#3"}


def test_every_node_gets_a_grade_with_its_reason() -> None:
    """By itself, and by what the others found: whom they blame has failed, however sound it is alone."""
    blame = BlameFacts.model_validate({**BLAME, "culprits": [CULPRIT], "silent": {2: "left 2 orders unanswered"}})
    sound = Acceptance(verdict=Verdict.PASS, checks=(), provenance={}, seconds=1.0)
    slow = CheckResult(check="gpu.pcie", question="?", verdict=Verdict.FAIL, reason="GPU 3: Gen3")
    failed = Acceptance(verdict=Verdict.FAIL, checks=(slow,), provenance={}, seconds=1.0)
    hosts = {0: "n0", 1: "n1", 2: "n2", 3: "n3", 4: "n4"}
    grades = node_grades(hosts, {0: sound, 1: sound, 2: sound, 3: failed}, {4: "last heartbeat 9 s ago"}, blame)
    assert [(grade.host, grade.verdict, grade.reason) for grade in grades] == [
        ("n0", Verdict.PASS, ""),
        ("n1", Verdict.FAIL, "bad cable: rail 3"),
        ("n2", Verdict.FAIL, "left 2 orders unanswered"),
        ("n3", Verdict.FAIL, "gpu.pcie: GPU 3: Gen3"),
        ("n4", Verdict.FAIL, "missing: last heartbeat 9 s ago"),
    ]
