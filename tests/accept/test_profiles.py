"""Demands that name checks which exist, grade more strictly than we do, and are never met by silence."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from seatrial.accept import catalogue, render
from seatrial.accept.profiles import CLUSTERMAX, PROFILES, Profile, answers, find_profile, under
from seatrial.acceptance import Acceptance
from seatrial.cli.main import app
from seatrial.errors import UsageError
from seatrial.records import CheckResult, Verdict

every_profile = pytest.mark.parametrize("profile", PROFILES, ids=lambda profile: profile.name)


def result(check: str, verdict: Verdict) -> CheckResult:
    return CheckResult(check=check, question="?", verdict=verdict, reason="as it is")


@every_profile
def test_every_name_is_a_check_and_every_gap_is_admitted(profile: Profile) -> None:
    names = {check.name for check in catalogue.EVERY}
    for ask in profile.asks:
        assert set(ask.answered_by) <= names
        assert ask.answered_by or ask.note, f"{ask.asked}: neither answered nor explained"
    assert set(profile.strict) <= names and all(profile.strict.values())
    assert set(profile.required) <= set(profile.checks)
    assert catalogue.choose(profile.checks)
    assert profile.source


def test_a_warning_fails_where_the_profile_is_strict_and_only_there() -> None:
    graded = under(CLUSTERMAX, result("cluster.fleet", Verdict.WARN))
    assert graded.verdict is Verdict.FAIL and "a FAIL under clustermax: nodes of one contract" in graded.reason
    assert under(CLUSTERMAX, result("gpu.pcie", Verdict.WARN)).verdict is Verdict.WARN
    for verdict in (Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE):
        assert under(CLUSTERMAX, result("cluster.fleet", verdict)).verdict is verdict


def test_what_is_asked_for_cannot_be_skipped() -> None:
    graded = under(CLUSTERMAX, result("fabric.rdma", Verdict.SKIPPED))
    assert graded.verdict is Verdict.INCONCLUSIVE and "which asks for it" in graded.reason
    assert under(CLUSTERMAX, result("fabric.peer", Verdict.SKIPPED)).verdict is Verdict.SKIPPED


def test_each_demand_gets_the_gravest_of_its_answers() -> None:
    checks = (
        result("gpu.inventory", Verdict.PASS),
        result("gpu.kernel_log", Verdict.FAIL),
        result("fabric.peer", Verdict.SKIPPED),
    )
    acceptance = Acceptance(verdict=Verdict.FAIL, checks=checks, provenance={}, seconds=1.0, profile="clustermax")
    found = {ask.asked: grade for ask, grade in answers(CLUSTERMAX, acceptance)}
    assert found["GPUs that fell off the bus, XID 79 and its like"] is Verdict.FAIL
    assert found["all-reduce within a node over NVLink"] is Verdict.SKIPPED
    assert found["partition keys equal on all ports"] is None
    page = render.markdown(acceptance)
    assert "Graded by clustermax" in page
    assert "| GPUs that fell off the bus, XID 79 and its like | FAIL | gpu.inventory, gpu.kernel_log |" in page
    assert "| partition keys equal on all ports | not answered |" in page


def test_an_unknown_profile_is_refused() -> None:
    with pytest.raises(UsageError, match="--profile clustermux: no such profile; there is: clustermax"):
        find_profile("clustermux")


def test_on_a_machine_without_gpus_the_profile_is_not_met(tmp_path: Path) -> None:
    """Whatever is skipped here is asked for there: that is no PASS."""
    arguments = ["accept", "--profile", "clustermax", "--checks", "gpu.inventory,fabric.peer", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code != 0, done.output
    written = json.loads((tmp_path / "acceptance.json").read_text())
    assert written["profile"] == "clustermax"
    assert written["checks"][0]["verdict"] != "SKIPPED"
