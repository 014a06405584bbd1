"""Answers in the form that SkyPilot prints them, colours included."""

import pytest

from seatrial.launch.preflight.skypilot import check, judge_check, judge_version, judge_volumes
from tests.launch.preflight.jobs import FAIL, PASS, SKIPPED, answer, job

ENABLED = "Checking credentials to enable infra for SkyPilot.\n  \x1b[32mKubernetes: enabled\x1b[0m [compute]\n"
DISABLED = """Checking credentials to enable infra for SkyPilot.
  Kubernetes: disabled
    Reason [compute]: Kubernetes is not reachable: could not load ~/.kube/config
"""
VOLUMES = "NAME  TYPE     INFRA           SIZE\ndata  k8s-pvc  Kubernetes/ctx  2048Gi\n"


def test_the_program_itself() -> None:
    assert judge_version(answer("skypilot, version 0.14.1\n")).verdict is PASS
    missing = judge_version(answer(stderr="sky: no such program", returncode=None))
    assert (missing.verdict, missing.reason) == (FAIL, "sky: no such program")


@pytest.mark.parametrize("infra", ["k8s", "k8s/my-context", "kubernetes"])
def test_infrastructure_that_may_be_used(infra: str) -> None:
    asked = job(skypilot={"infra": infra})
    assert check(asked) == ("sky", "check", "kubernetes")
    assert judge_check(asked, answer(ENABLED)).reason == "enabled [compute]"


def test_infrastructure_that_may_not() -> None:
    finding = judge_check(job(), answer(DISABLED, returncode=1))
    assert finding.verdict is FAIL
    assert "could not load ~/.kube/config" in finding.reason
    assert judge_check(job(skypilot={"infra": "nebius"}), answer(ENABLED)).verdict is FAIL


def test_volumes() -> None:
    asked = job(mounts=[{"path": "/a", "source": "data"}, {"path": "/b", "source": "other"}, {"path": "/c"}])
    assert [finding.verdict for finding in judge_volumes(asked, answer(VOLUMES))] == [PASS, FAIL]
    assert [finding.verdict for finding in judge_volumes(asked, answer(stderr="no", returncode=1))] == [SKIPPED]
