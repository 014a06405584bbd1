"""Simulated clusters with known faults: exactly those are named, whatever the seed, and nobody in a healthy one."""

import time
from dataclasses import replace

import numpy as np
import pytest

from seatrial.accept.blame.bouts import Bouts, Floats
from seatrial.accept.blame.decode import grouped_median, low_ports, polish
from seatrial.accept.blame.inquest import investigate
from seatrial.accept.blame.plan import Round
from seatrial.accept.blame.simulate import Fault, SimulatedCluster, compared, draw_faults
from seatrial.records import JsonObject


def found(faults: tuple[Fault, ...], nodes: int, seed: int) -> JsonObject:
    return compared(faults, investigate(SimulatedCluster(nodes, 8, 8, faults, seed), seed))


@pytest.mark.parametrize("seed", range(20))
def test_five_faults_among_32_nodes_are_named(seed: int) -> None:
    report = found(draw_faults(32, 8, 8, 5, seed), 32, seed)
    assert len(report["injected"]) == 5
    assert report["found"] == report["injected"]


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("nodes", [3, 4, 6, 9, 100])
def test_one_fault_of_each_kind_among_few_and_many_nodes(nodes: int, seed: int) -> None:
    fault = draw_faults(max(nodes, 5), 8, 8, 5, seed)[seed % 5]
    faults = (fault.model_copy(update={"node": fault.node % nodes}),)
    report = found(faults, nodes, seed)
    assert report["found"] == report["injected"]


@pytest.mark.parametrize("nodes", [2, 3, 4, 9, 64, 100])
def test_nobody_is_accused_in_a_healthy_cluster(nodes: int) -> None:
    for seed in range(10):
        assert found((), nodes, seed)["found"] == []


class Crowded(SimulatedCluster):
    """Ranks on processors that others use: rates scatter by half, whole bouts too, and the load comes and goes."""

    def play(self, turn: int, round_: Round, repeats: int) -> Bouts:
        bouts = super().play(turn, round_, repeats)
        of_bout_M = np.repeat(self._draw.normal(0, 0.3, len(round_)), self.rails * repeats)
        alone_M = self._draw.normal(0, 0.5, len(of_bout_M))
        load = 0.5 if (turn // 7) % 2 else 1.0
        return replace(bouts, rate_M=bouts.rate_M * load * np.exp(of_bout_M + alone_M))


@pytest.mark.parametrize("nodes", [3, 4, 6, 12])
def test_nobody_is_accused_on_crowded_processors(nodes: int) -> None:
    for seed in range(50):
        inquest = investigate(Crowded(nodes, 0, 1, (), seed), seed)
        assert inquest.culprits == (), seed


@pytest.mark.parametrize("nodes", [3, 4, 8])
def test_even_there_a_node_that_is_far_slower_is_named(nodes: int) -> None:
    slow = Fault(kind="bad cable", node=1, part="rail 0", strength=0.1)
    for seed in range(10):
        inquest = investigate(Crowded(nodes, 0, 1, (slow,), seed), seed)
        assert [(found.node, found.part) for found in inquest.culprits] == [(1, "rail 0")], seed


def test_between_two_nodes_a_slow_rail_is_told_from_the_others() -> None:
    for seed in range(10):
        faults = (Fault(kind="bad cable", node=seed % 2, part="rail 5", strength=0.7),)
        (culprit,) = investigate(SimulatedCluster(2, 8, 8, faults, seed), seed).culprits
        assert (culprit.kind, culprit.node, culprit.part) == ("bad path", 0, "rail 5 to node 1")
        assert culprit.loss == pytest.approx(0.3, abs=0.03)
        assert "third node" in culprit.evidence[1]


class SlowSwitch(SimulatedCluster):
    """All nodes leave by the same switch on rail 2, and it runs at half its rate."""

    def play(self, turn: int, round_: Round, repeats: int) -> Bouts:
        bouts = super().play(turn, round_, repeats)
        return replace(bouts, rate_M=np.where(bouts.rail_M == 2, bouts.rate_M / 2, bouts.rate_M))


@pytest.mark.parametrize("nodes", [3, 4, 32])
def test_a_rail_that_is_slow_for_everybody_is_told_and_no_node_is_blamed(nodes: int) -> None:
    inquest = investigate(SlowSwitch(nodes, 8, 8, (), 0), 0)
    assert inquest.culprits == ()
    assert inquest.slow_rails == {2: pytest.approx(0.5, abs=0.03)}


def test_five_faults_among_512_nodes_in_a_minute() -> None:
    start = time.process_time()
    report = found(draw_faults(512, 8, 8, 5, 7), 512, 7)
    assert report["found"] == report["injected"] and len(report["found"]) == 5
    assert time.process_time() - start < 60


def test_a_path_between_two_sound_nodes_is_named() -> None:
    for seed in range(5):
        faults = (Fault(kind="bad path", node=3, part="rail 2 to node 11", strength=0.6),)
        report = found(faults, 16, seed)
        assert report["found"] == [{"kind": "bad path", "node": 3, "part": "rail 2 to node 11"}]


def test_when_most_nodes_are_slow_nobody_is_named_and_it_says_so() -> None:
    """Of two nodes nobody can tell which is slow."""
    faults = (Fault(kind="bad cable", node=0, part="rail 1", strength=0.5),)
    inquest = investigate(SimulatedCluster(2, 8, 8, faults, 0), 0)
    assert all(culprit.kind == "bad path" for culprit in inquest.culprits)


def test_a_port_that_fails_altogether_is_steadily_bad() -> None:
    class Deaf(SimulatedCluster):
        """Node 5 cannot be reached on rail 3: the measurement fails."""

        def play(self, turn: int, round_: Round, repeats: int) -> Bouts:
            bouts = super().play(turn, round_, repeats)
            deaf_M = ((bouts.a_M == 5) | (bouts.b_M == 5)) & (bouts.rail_M == 3)
            bouts.rate_M[deaf_M] = np.nan
            return bouts

    inquest = investigate(Deaf(12, 8, 8, (), 0), 0)
    (culprit,) = inquest.culprits
    assert (culprit.node, culprit.part, culprit.loss) == (5, "rail 3", 1.0)


def test_without_a_loopback_a_rail_is_named_and_not_its_cause() -> None:
    class Blind(SimulatedCluster):
        def loopback(self, repeats: int) -> Floats:
            return np.full((self.nodes, self.rails, repeats), np.nan)

    faults = (Fault(kind="bad NIC", node=2, part="nic 6", strength=0.5),)
    (culprit,) = investigate(Blind(12, 8, 8, faults, 0), 0).culprits
    assert (culprit.kind, culprit.node, culprit.part) == ("bad rail", 2, "rail 6")


def test_evidence_names_the_numbers() -> None:
    faults = (Fault(kind="bad cable", node=2, part="rail 6", strength=0.5),)
    (culprit,) = investigate(SimulatedCluster(12, 8, 8, faults, 0), 0).culprits
    assert culprit.loss == pytest.approx(0.5, abs=0.03)
    slower, alone, counted = culprit.evidence
    assert slower == f"{culprit.loss:.0%} slower than the rail, with every partner"
    assert "without the cable, the port carries 46" in alone or "the port carries 47" in alone
    assert "more symbol errors" in counted and " 0 more" not in counted


def test_polish_separates_nodes_that_slow_each_other() -> None:
    a_M, b_M = np.array([0, 0, 1, 0, 1, 2]), np.array([1, 2, 2, 3, 3, 3])
    capacity_N = np.array([1.0, 0.5, 1.0, 1.0])
    rate_M = 40 * np.minimum(capacity_N[a_M], capacity_N[b_M])
    bouts = Bouts(np.zeros(6, dtype=np.int64), a_M, b_M, np.zeros(6, dtype=np.int64), rate_M)
    polished = polish(bouts, 4, 1)
    assert np.exp(polished.effect_NL[:, 0]) == pytest.approx(capacity_N)
    assert low_ports(polished)[:, 0].tolist() == [False, True, False, False]
    assert polished.rest_M == pytest.approx(np.zeros(6), abs=1e-9)


def test_grouped_median() -> None:
    medians = grouped_median(np.array([0, 0, 0, 2, 2, 2]), np.array([3.0, 1.0, 2.0, 1.0, 5.0, np.nan]), 3)
    assert medians[[0, 2]].tolist() == [2.0, 3.0] and np.isnan(medians[1])
