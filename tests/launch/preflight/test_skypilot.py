"""Answers of SkyPilot, colours included."""

import pytest

from seatrial.launch.preflight.skypilot import check, judge_check, judge_version, judge_volumes
from tests.launch.preflight.jobs import FAIL, PASS, SKIPPED, WARN, answer, job

# Of SkyPilot 0.14.1, against a server with one node whose GPUs have no label, and without what it needs to reach one.
HEAD = "Checking credentials to enable infra for SkyPilot.\n"
ENABLED = (
    HEAD + "\x1b[32m\x1b[22m  Kubernetes: enabled [compute]\x1b[0m\n    Allowed contexts:\n"
    "    \x1b[2m└── \x1b[0mmine: \x1b[32menabled.\x1b[0m\n\n\x1b[32m🎉 Enabled infra 🎉\x1b[0m\n"
    "  \x1b[32mKubernetes [compute]\x1b[0m\n    Allowed contexts:\n    \x1b[2m└── \x1b[0mmine\n"
)
UNLABELLED = ENABLED.replace(
    "enabled.\x1b[0m",
    "enabled.\x1b[0m\x1b[2m Note: Cluster has 1 nodes with accelerators that are not labeled. To label the nodes, run "
    "`sky gpus label --context mine`\x1b[0m\x1b[0m",
)
DISABLED = (
    HEAD + "\x1b[2m  Kubernetes: disabled \x1b[0m\x1b[0m\n"
    "    Reason [compute]: `socat` is required to setup Kubernetes cloud with `portforward` default networking mode "
    "and it is not installed. \n    On Debian/Ubuntu, install the missing dependenc(ies) with:\n"
)
OUT_OF_REACH = (
    HEAD + "\x1b[2m  Kubernetes: disabled \x1b[0m\x1b[0m\n    Reason [compute]:     \n        Allowed contexts:\n"
    "        \x1b[2m└── \x1b[0mmine: \x1b[91mdisabled.\x1b[0m\x1b[2m "
    "Reason: Failed to communicate with the cluster: (404)\n"
)
VOLUMES = "NAME  TYPE     INFRA           SIZE\ndata  k8s-pvc  Kubernetes/ctx  2048Gi\n"


def test_the_program_itself() -> None:
    assert judge_version(answer("skypilot, version 0.14.1\n")).verdict is PASS
    missing = judge_version(answer(stderr="sky: no such program", returncode=None))
    assert (missing.verdict, missing.reason) == (FAIL, "sky: no such program")


@pytest.mark.parametrize("infra", ["k8s", "k8s/mine", "kubernetes"])
def test_infrastructure_that_may_be_used(infra: str) -> None:
    asked = job(skypilot={"infra": infra})
    assert check(asked) == ("sky", "check", "kubernetes")
    assert judge_check(asked, answer(ENABLED)).verdict is PASS
    unlabelled = judge_check(asked, answer(UNLABELLED))
    assert unlabelled.verdict is WARN
    assert unlabelled.reason.endswith("run `sky gpus label --context mine`")
    assert judge_check(job(gpus_per_node=0, processes_per_node=1), answer(UNLABELLED)).verdict is PASS


@pytest.mark.parametrize(
    ("said", "infra", "reason"),
    [
        (DISABLED, "k8s", "`socat` is required"),
        (OUT_OF_REACH, "k8s", "Failed to communicate with the cluster: (404)"),
        (OUT_OF_REACH, "k8s/mine", "Failed to communicate with the cluster: (404)"),
        (ENABLED, "k8s/other", "knows no context other"),
        (ENABLED, "nebius", "mine"),
    ],
)
def test_infrastructure_that_may_not(said: str, infra: str, reason: str) -> None:
    finding = judge_check(job(skypilot={"infra": infra}), answer(said))  # exit code 0 all the same
    assert finding.verdict is FAIL
    assert reason in finding.reason


BUCKET = {"path": "/d", "source": "s3://bucket"}


def test_volumes() -> None:
    asked = job(mounts=[{"path": "/a", "source": "data"}, {"path": "/b", "source": "other"}, {"path": "/c"}, BUCKET])
    assert [finding.verdict for finding in judge_volumes(asked, answer(VOLUMES))] == [PASS, FAIL]
    assert [finding.verdict for finding in judge_volumes(asked, answer(stderr="no", returncode=1))] == [SKIPPED]
