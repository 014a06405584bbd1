"""kubectl's answers, recorded or given by a real kubectl that asks a server of ours."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.launch.job import Rendered
from seatrial.launch.preflight import kubernetes as k
from seatrial.launch.preflight.finding import Finding, as_text
from seatrial.launch.preflight.run import preflight
from seatrial.shell import Output
from tests.launch.preflight.api_server import api_server
from tests.launch.preflight.jobs import FAIL, PASS, SKIPPED, WARN, answer, job

SECRET = "c2VjcmV0"
FORBIDDEN = 'Error from server (Forbidden): nodes is forbidden: User "ada" cannot list resource "nodes"\n'


def listing(*items: dict[str, Any]) -> Output:
    return answer(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))


def node(gpus: int, *, ready: bool = True, cordoned: bool = False) -> dict[str, Any]:
    allocatable = {"cpu": "127500m", "memory": "1500Gi"} | ({k.GPU: str(gpus)} if gpus else {})
    return {
        "metadata": {"name": "n"},
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {"allocatable": allocatable, "conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def quota(hard: dict[str, str], used: dict[str, str]) -> dict[str, Any]:
    return {"metadata": {"name": "team"}, "status": {"hard": hard, "used": used}}


def claim(name: str, phase: str, mode: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"accessModes": [mode]},
        "status": {"phase": phase, "capacity": {"storage": "2Ti"}},
    }


def storage_class(name: str, *, default: bool = False) -> dict[str, Any]:
    mark = {"storageclass.kubernetes.io/is-default-class": "true"} if default else {}
    return {"metadata": {"name": name, "annotations": mark}}


@pytest.mark.parametrize(
    ("text", "value"),
    [("8", 8), ("500m", 0.5), ("64Gi", 64 * 2**30), ("2k", 2000), ("1e3", 1000), ("1.5Ti", 1.5 * 2**40), ("3E", 3e18)],
)
def test_quantities(text: str, value: float) -> None:
    assert k.quantity(text) == value


@given(number=st.integers(0, 10**6), unit=st.sampled_from(["", "m", "k", "M", "G", "Ki", "Mi", "Gi", "Ti"]))
def test_quantities_grow_with_their_number(number: int, unit: str) -> None:
    assert k.quantity(f"{number + 1}{unit}") > k.quantity(f"{number}{unit}") >= 0


@pytest.mark.parametrize(
    ("stderr", "code", "words"),
    [
        ("kubectl: no such program", None, "install kubectl"),
        (
            "The connection to the server localhost:8080 was refused - did you specify\n",
            1,
            "cluster-info",
        ),
        ('error: context "nosuch" does not exist\n', 1, "config get-contexts"),
    ],
)
def test_nobody_to_ask(stderr: str, code: int | None, words: str) -> None:
    finding = k.judge_server(answer(stderr=stderr, returncode=code))
    assert finding.verdict is FAIL
    assert words in finding.remedy


def test_permission() -> None:
    assert k.judge_permission(job(), "jobs.batch", answer("yes\n")).verdict is PASS
    refused = k.judge_permission(job(kubernetes={"namespace": "ml"}), "jobs.batch", answer("no\n", returncode=1))
    assert (refused.verdict, refused.reason) == (FAIL, "not allowed in namespace ml")
    # kubectl says so on stderr, and yes all the same
    warning = "Warning: the server doesn't have a resource type 'pytorchjobs' in group 'kubeflow.org'\n"
    assert "operator" in k.judge_permission(job(), "pytorchjobs.kubeflow.org", answer("yes\n", warning)).remedy


@pytest.mark.parametrize(
    ("hard", "used", "reason"),
    [
        ({"requests.nvidia.com/gpu": "16"}, {"requests.nvidia.com/gpu": "8"}, "16 wanted, 8 of 16 left"),
        ({"pods": "10"}, {"pods": "9"}, "pods: 2 wanted, 1 of 10 left"),
        ({"requests.memory": "1Ti"}, {}, "requests.memory"),
        ({"requests.cpu": "100"}, {"requests.cpu": "99500m"}, "64 wanted, 0.5 of 100 left"),
    ],
)
def test_a_quota_that_is_too_small(hard: dict[str, str], used: dict[str, str], reason: str) -> None:
    wanted = job(cpus_per_node=32, memory_gib=1024)
    (finding,) = k.judge_quota(wanted, listing(quota(hard, used)))
    assert finding.verdict is FAIL
    assert reason in finding.reason
    assert "describe resourcequota team" in finding.remedy


def test_quotas_that_do_not_matter() -> None:
    assert not list(k.judge_quota(job(), listing()))
    (finding,) = k.judge_quota(job(), listing(quota({"services": "0", "pods": "2"}, {"pods": "0"})))
    assert finding.verdict is PASS
    (unasked,) = k.judge_quota(job(), answer(stderr=FORBIDDEN, returncode=1))
    assert unasked.verdict is SKIPPED


@pytest.mark.parametrize(
    ("nodes", "verdict", "reason"),
    [
        ([node(8), node(8)], PASS, "2 are ready"),
        ([node(8), node(8, cordoned=True)], WARN, "1 of 2 large enough nodes"),
        ([node(8), node(8, ready=False)], WARN, "1 of 2 large enough nodes"),
        ([node(8), node(4)], FAIL, "1 of 2 nodes have 8 GPUs"),
        ([node(0), node(0)], FAIL, "no node offers nvidia.com/gpu"),
        ([], FAIL, "no node offers"),
    ],
)
def test_nodes(nodes: list[dict[str, Any]], verdict: object, reason: str) -> None:
    finding = k.judge_nodes(job(), listing(*nodes))
    assert finding.verdict is verdict
    assert reason in finding.reason


def claims_of(mount: dict[str, Any], *found: dict[str, Any], classes: Output | None = None) -> Finding:
    classes = classes or listing(storage_class("fast"), storage_class("files", default=True))
    (finding,) = k.judge_claims(job(mounts=[{"path": "/mnt/data", **mount}]), listing(*found), classes)
    return finding


def test_claims() -> None:
    named = {"source": "data"}
    assert claims_of(named, claim("data", "Bound", "ReadWriteMany")).verdict is PASS
    assert claims_of(named, claim("data", "Pending", "ReadWriteMany")).verdict is WARN
    assert "is Lost" in claims_of(named, claim("data", "Lost", "ReadWriteMany")).reason
    assert "one node at a time" in claims_of(named, claim("data", "Bound", "ReadWriteOnce")).reason
    assert claims_of({**named, "kind": "disk"}, claim("data", "Bound", "ReadWriteOnce")).verdict is PASS
    missing = claims_of(named, claim("date", "Bound", "ReadWriteMany"))
    assert (missing.verdict, missing.reason) == (FAIL, "no claim data: there are date")


def test_claims_that_will_be_made() -> None:
    made = {"size_gib": 10}
    assert claims_of(made).reason == "a claim of class files will be made"
    assert claims_of({**made, "storage_class": "fast"}).verdict is PASS
    assert "one of fast, files" in claims_of({**made, "storage_class": "slow"}).remedy
    assert claims_of(made, classes=listing(storage_class("fast"))).verdict is FAIL
    before = claim("seatrial-mnt-data", "Bound", "ReadWriteMany")
    assert claims_of(made, before).reason == "claim seatrial-mnt-data is bound, 2Ti"


def test_secrets_by_name() -> None:
    wanted = job(secrets=("HF_TOKEN", "WANDB_API_KEY"))
    assert k.judge_secret(wanted, answer("HF_TOKEN\nWANDB_API_KEY\n")).verdict is PASS
    assert k.judge_secret(wanted, answer("HF_TOKEN\n")).reason == "has no WANDB_API_KEY"
    none = answer(stderr='Error from server (NotFound): secrets "seatrial" not found\n', returncode=1)
    assert 'create secret generic seatrial --from-literal=HF_TOKEN="$HF_TOKEN"' in k.judge_secret(wanted, none).remedy


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ('Error from server (Forbidden): jobs.batch "t" is forbidden: exceeded quota: team\n', "resourcequota"),
        ('Error from server (AlreadyExists): jobs.batch "t" already exists\n', "another job.name"),
        ('error: unknown field "spec.completionz"\n', "explain"),
    ],
)
def test_what_the_server_refuses(said: str, remedy: str) -> None:
    finding = k.judge_dry_run(answer(stderr=said, returncode=1))
    assert finding.verdict is FAIL
    assert remedy in finding.remedy


def test_all_that_will_be_made_is_asked_for() -> None:
    asked = k.questions(job(mounts=[{"path": "/mnt/data", "size_gib": 1}]), "trainjob")
    assert [name.removeprefix("create ") for name in asked if name.startswith("create ")] == [
        "trainjobs.trainer.kubeflow.org",
        "trainingruntimes.trainer.kubeflow.org",
        "configmaps",
        "persistentvolumeclaims",
    ]
    assert all("--namespace" in argv for argv in asked.values())


@pytest.fixture
def kubectl(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[pytest.MonkeyPatch]:
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl here")
    monkeypatch.setenv("HOME", str(tmp_path))  # where it caches what a server knows
    yield monkeypatch


MANIFEST = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: tune}\nspec: {template: {spec: {containers: []}}}\n"


def test_a_real_kubectl_asks_a_sound_cluster(kubectl: pytest.MonkeyPatch, tmp_path: Path) -> None:
    objects = {
        "nodes": [node(8), node(8)],
        "persistentvolumeclaims": [claim("data", "Bound", "ReadWriteMany")],
        "secrets": [{"metadata": {"name": "seatrial"}, "data": {"HF_TOKEN": SECRET}}],
    }
    asked = job(verb="bench", secrets=("HF_TOKEN",), mounts=[{"path": "/mnt/data", "source": "data"}])
    with api_server(tmp_path, objects) as config:
        kubectl.setenv("KUBECONFIG", str(config))
        findings = preflight(asked, "kubernetes", folder=tmp_path, rendered=Rendered((("tune.yaml", MANIFEST),), ()))
    assert [finding.verdict for finding in findings] == [PASS] * len(findings), findings
    assert {finding.what for finding in findings} >= {"kubernetes", "nodes", "mount /mnt/data", "secret seatrial"}
    assert SECRET not in as_text(findings)


def test_a_real_kubectl_tells_all_that_is_wrong_at_once(kubectl: pytest.MonkeyPatch, tmp_path: Path) -> None:
    objects = {"nodes": [node(4)], "resourcequotas": [quota({"pods": "1"}, {})]}
    asked = job(
        verb="bench",
        secrets=("HF_TOKEN",),
        mounts=[{"path": "/mnt/data", "source": "data"}],
        kubernetes={"queue": "gpus", "service_account": "trainer"},
    )
    rendered = Rendered((("tune.yaml", MANIFEST),), ())
    with api_server(tmp_path, objects, frozenset({"pytorchjobs", "storageclasses"})) as config:
        kubectl.setenv("KUBECONFIG", str(config))
        findings = preflight(asked, "pytorchjob", folder=tmp_path, rendered=rendered)
    wrong = {finding.what for finding in findings if finding.verdict is FAIL}
    assert wrong == {
        "create pytorchjobs.kubeflow.org",
        "quota team",
        "nodes",
        "mount /mnt/data",
        "secret seatrial",
        "service account",
        "queue",
    }


def test_a_real_kubectl_without_a_cluster(kubectl: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "kubeconfig").write_text("apiVersion: v1\nkind: Config\n")
    kubectl.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    (finding,) = preflight(job(verb="bench"), "kubernetes", folder=tmp_path, rendered=Rendered((), ()))
    assert finding.verdict is FAIL
    assert "cluster-info" in finding.remedy
