"""Ranks of two nodes that train together: real processes on this machine, told to by a board."""

from contextlib import ExitStack
from pathlib import Path

from seatrial.accept.cluster import member
from seatrial.accept.cluster.board import Board
from seatrial.accept.cluster.checks import judge_training
from seatrial.accept.cluster.conductor import RankCluster
from seatrial.accept.cluster.crew import Crew
from seatrial.accept.cluster.together import over_all, train_all
from seatrial.accept.limits import Limits
from seatrial.accept.selftest.faults import free_port
from seatrial.accept.training.rate import Workload
from seatrial.acceptance import Acceptance
from seatrial.records import CheckResult, Measurement, Verdict, append_jsonl

WORKLOAD = Workload(shape="tiny", base="plain", compute="float32", rank=4, length=32, rows=1, steps=5)


def report(host: str) -> Acceptance:
    rate = Measurement(name="step rate together", value=1600.0, unit="tokens/s", n=5, spread=0.0, where=host)
    port = Measurement(name="port rate", value=400.0, unit="Gbit/s", n=1, spread=0.0, where="mlx5_0 port 1")
    checks = (
        CheckResult(check="training.rate", question="?", verdict=Verdict.PASS, reason="", measurements=(rate,)),
        CheckResult(check="fabric.rdma", question="?", verdict=Verdict.PASS, reason="", measurements=(port,)),
    )
    return Acceptance(verdict=Verdict.PASS, checks=checks, provenance={}, seconds=1.0, host=host)


def test_two_nodes_add_up_and_train_together(tmp_path: Path) -> None:
    port = free_port()
    board = Board.at("127.0.0.1", port, host=True, prefix="train")
    seats = [
        member.Seat(
            address="127.0.0.1",
            port=port,
            prefix="train",
            node=node,
            local=0,
            backend="gloo",
            interface=member.loopback_interface(),
        )
        for node in (3, 5)
    ]
    append_jsonl(
        tmp_path / "facts.jsonl", {"check": "training.rate", "facts": {"workload": WORKLOAD.model_dump(mode="json")}}
    )
    reports = {"n3": report("n3"), "n5": report("n5")}
    with ExitStack() as stack:
        for seat in seats:
            stack.enter_context(Crew([seat], tmp_path / "ranks.log"))
        cluster = RankCluster(board, (3, 5), 1, has_gpus=False)
        whole = over_all(cluster, (0, 1), "gloo", reports)
        training = train_all(cluster, (0, 1), reports, tmp_path)
        cluster.end()
    assert whole is not None and [step.wrong for step in whole.ranks.steps] == [0, 0, 0]
    assert whole.rdma_gb_per_s == {"n3": (50.0,), "n5": (50.0,)}
    assert training is not None, (tmp_path / "ranks.log").read_text()
    assert len(training.seconds) == WORKLOAD.steps
    assert set(training.own_seconds) == {"n3 rank 0", "n5 rank 0"} and min(training.own_seconds.values()) > 0
    assert training.node_seconds == {"n3": 0.02, "n5": 0.02}
    assert judge_training(training, Limits()).verdict is Verdict.PASS


def test_nothing_is_trained_where_no_node_trained_by_itself(tmp_path: Path) -> None:
    board = Board.at("127.0.0.1", free_port(), host=True, prefix="none")
    cluster = RankCluster(board, (0, 1), 1, has_gpus=False)
    alone = report("n0").model_copy(update={"checks": ()})
    assert train_all(cluster, (0, 1), {"n0": alone, "n1": alone}, tmp_path) is None
