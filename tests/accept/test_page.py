"""The page holds every check, draws what was measured, and loads nothing."""

import re

import pytest

from seatrial.accept.blame.inquest import Culprit
from seatrial.accept.blame.ticket import ticket
from seatrial.accept.catalogue import LADDER
from seatrial.accept.check import judge_recorded
from seatrial.accept.cluster.checks import BlameFacts
from seatrial.accept.limits import Limits
from seatrial.accept.page import figures, html
from seatrial.accept.parts import gpu_parts
from seatrial.accept.runner import result_of
from seatrial.acceptance import Acceptance
from seatrial.records import JsonObject, Verdict

from .healthy import DRIVER, HEALTHY

CULPRIT = Culprit(kind="bad GPU", node=0, part="gpu 3", loss=0.2, evidence=("computes 20% <less>",))
BLAME = BlameFacts(
    hosts=("n0", "n1", "n2"),
    rounds=3,
    culprits=(CULPRIT,),
    slow_rails={},
    wrong=(),
    silent={},
    excluded={},
    at_scale="",
    rates=((None, 40.0, 41.0), (40.0, None, 40.5), (41.0, 40.5, None)),
)
FACTS: list[JsonObject] = [
    *({"check": name, "facts": facts.model_dump(mode="json")} for name, facts in HEALTHY.items()),
    {"check": "cluster.blame", "facts": BLAME.model_dump(mode="json")},
]


@pytest.fixture(scope="module")
def acceptance() -> Acceptance:
    checks = tuple(
        result_of(check, judge_recorded(check, HEALTHY[check.name].model_dump(mode="json"), Limits()), 1.0)
        for check in LADDER
    )
    return Acceptance(
        verdict=Verdict.PASS,
        checks=checks,
        provenance={"cpu": "EPYC", "gpus": ["NVIDIA H200"] * 8, "seatrial": "0"},
        seconds=60.0,
        host="n0",
        parts=gpu_parts(DRIVER),
        culprits=(ticket(CULPRIT, ("n0", "n1"), {0: gpu_parts(DRIVER)}),),
    )


def test_the_page_is_whole_and_loads_nothing(acceptance: Acceptance) -> None:
    page = html(acceptance, FACTS)
    for result in acceptance.checks:
        assert result.check in page
    assert "165003" in page and "computes 20% &lt;less&gt;" in page
    assert not re.search(r"<(script|link|img|iframe)|@import|url\(\s*[\"']?http|src=", page)


def test_curves_matrices_and_bars_are_drawn(acceptance: Acceptance) -> None:
    drawn = dict(figures(acceptance, FACTS))
    assert [heading.partition(":")[0] for heading in drawn] == [
        "collectives.nccl",
        "collectives.loopback",
        "Copies from one GPU (row) to another",
        "Exchange of each pair of nodes",
        "gpu.pcie",
        "gpu.pcie",
        "gpu.memory_bandwidth",
        "gpu.gemm_bf16",
        "gpu.gemm_fp8",
        "training.rate",
    ]
    assert "floor to expected" in drawn["collectives.nccl: bandwidth by message size, 8 ranks"]
    assert ">n2<" in drawn["Exchange of each pair of nodes"] and ">40.5<" in drawn["Exchange of each pair of nodes"]
    assert all(chart.startswith("<svg") for chart in drawn.values())


def test_without_facts_there_is_a_page_all_the_same() -> None:
    bare = Acceptance(verdict=Verdict.INCONCLUSIVE, checks=(), provenance={}, seconds=0.0)
    page = html(bare, [{"check": "fabric.peer", "error": "crashed"}, {"check": "collectives.nccl", "facts": {}}])
    assert "INCONCLUSIVE" in page and "<svg" not in page
