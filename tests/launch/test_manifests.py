"""What is rendered for Kubernetes and Kubeflow: its form, its text, and what is refused."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.errors import SettingsError
from seatrial.launch.job import Job, Rendered
from seatrial.launch.kubernetes import render_kubernetes
from seatrial.launch.pytorchjob import render_pytorchjob
from seatrial.launch.trainjob import render_trainjob
from tests.launch import golden_files
from tests.launch.jobs import CONFIG, training
from tests.launch.manifests import Object, complaints, objects, of_kind
from tests.launch.pods import expand

Renderer = Callable[[Job, str | None, tuple[str, ...]], Rendered]
RENDERERS: dict[str, Renderer] = {
    "kubernetes": render_kubernetes,
    "pytorchjob": render_pytorchjob,
    "trainjob": render_trainjob,
}
EVERY = pytest.mark.parametrize("render", RENDERERS.values(), ids=RENDERERS)
FULL = {
    "mounts": (
        {"path": "/mnt/data", "size_gib": 2048, "storage_class": "csi-mounted-fs-path-sc"},
        {"path": "/mnt/models", "source": "models"},
        {"path": "/cache", "kind": "disk", "size_gib": 500},
        {"path": "/scratch", "kind": "scratch", "size_gib": 100},
        {"path": "/nvme", "kind": "scratch", "source": "/mnt/nvme0"},
    ),
    "memory_gib": 1500,
    "cpus_per_node": 120,
    "kubernetes": {
        "namespace": "team-a",
        "context": "poc",
        "queue": "gpus",
        "service_account": "trainer",
        "image_pull_secret": "registry",
        "rdma": {"rdma/ib": 8},
        "topology": "example.com/rack",
    },
}


def pods(rendered: Rendered) -> list[Object]:
    """The pod specs in it."""
    found = []

    def look(value: Any) -> None:
        if isinstance(value, dict):
            if "containers" in value:
                found.append(value)
            for inner in value.values():
                look(inner)
        elif isinstance(value, list):
            for inner in value:
                look(inner)

    look(objects(rendered))
    return found


def container(rendered: Rendered) -> Object:
    (only,) = pods(rendered)[0]["containers"]
    assert isinstance(only, dict)
    return only


@pytest.mark.parametrize("name", RENDERERS)
@pytest.mark.parametrize("nodes", [1, 2, 64])
def test_golden(name: str, nodes: int) -> None:
    excluded = ("worker-3", "worker-17") if nodes == 64 else ()
    golden_files.compare(f"{name}-{nodes}", RENDERERS[name](training(nodes, **FULL), CONFIG, excluded))


def test_golden_elastic() -> None:
    golden_files.compare("pytorchjob-elastic", render_pytorchjob(training(4, min_nodes=2), CONFIG))
    golden_files.compare("kubernetes-elastic", render_kubernetes(training(4, min_nodes=2), CONFIG))


@EVERY
@pytest.mark.parametrize(
    "changes",
    [
        {},
        FULL,
        {"gpus_per_node": 0, "processes_per_node": 1, "fabric": "none"},
        {"verb": "command", "config": None, "arguments": ("nvidia-smi", "-L")},
        {"verb": "accept", "config": None, "arguments": ()},
    ],
)
@pytest.mark.parametrize("nodes", [1, 64])
def test_every_object_is_well_formed(render: Renderer, changes: dict[str, Any], nodes: int) -> None:
    job = training(nodes, **changes)
    rendered = render(job, CONFIG if job.config is not None else None, ("node-7",))
    assert {each["kind"]: complaints(each) for each in objects(rendered)} == {
        each["kind"]: [] for each in objects(rendered)
    }


def test_elastic_is_well_formed() -> None:
    rendered = render_pytorchjob(training(4, min_nodes=2), CONFIG)
    assert complaints(of_kind("PyTorchJob", rendered)) == []
    assert of_kind("PyTorchJob", rendered)["spec"]["elasticPolicy"]["minReplicas"] == 2


@EVERY
@pytest.mark.parametrize("field", ["terminationGracePeriodSecondz", "volumess"])
def test_the_judges_see_a_wrong_field(render: Renderer, field: str) -> None:
    for each in objects(render(training(2), CONFIG, ())):
        wrong = copy.deepcopy(each)
        for spec in (value for value in _nested(wrong) if "containers" in value):
            spec[field] = 1
        assert bool(complaints(wrong)) == (wrong != each), each["kind"]


def _nested(value: Any) -> list[Object]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [*([value] if isinstance(value, dict) else []), *(each for one in inner for each in _nested(one))]


NASTY = st.text(st.characters(exclude_characters="\x00", codec="utf-8"), max_size=40) | st.sampled_from(
    [
        "no",
        "1:30",
        "0x1f",
        "1e3",
        "~",
        "$(HOME)",
        "$$(HOME)",
        "`id`",
        "'\"\\",
        "a\nb: c",
        "- x",
        "#",
        "{{x}}",
        "\t",
        "%YAML",
        "\r",
        "a\r\n",
    ]
)


@EVERY
@settings(max_examples=50, deadline=None)
@given(word=NASTY, value=NASTY, config=NASTY)
def test_text_of_a_user_arrives_as_it_is(render: Renderer, word: str, value: str, config: str) -> None:
    job = training(2, arguments=(word,), environment={"TEXT": value})
    rendered = render(job, config, ())
    for pod in pods(rendered):
        (only,) = pod["containers"]
        assert all(type(each) is str for each in only["command"])
        assert expand(only["command"][6], {"HOME": "expanded"}) == word
        (given_value,) = (each["value"] for each in only["env"] if each["name"] == "TEXT")
        assert expand(given_value, {"HOME": "expanded"}) == value
    assert of_kind("ConfigMap", rendered)["data"] == {"config.yaml": config}


@EVERY
def test_names_that_older_yaml_takes_for_something_else_stay_names(render: Renderer) -> None:
    names = {"namespace": "on", "secret": "off", "queue": "1:30", "topology": "0x1f", "rdma": {"no": 1}}
    job = training(2, name="no", environment={"yes": "1e3", "null": "~"}, secrets=("OFF",), kubernetes=names)
    rendered = render(job, CONFIG, ("0777",))
    assert {each["metadata"]["namespace"] for each in objects(rendered)} == {"on"}
    assert "no" in {each["metadata"]["name"] for each in objects(rendered)}
    assert not [each["kind"] for each in objects(rendered) if complaints(each)]
    only = container(rendered)
    assert {"yes", "null", "OFF"} <= {each["name"] for each in only["env"]}
    assert only["resources"]["limits"]["no"] == "1"
    assert all(isinstance(key, str) for value in _nested(objects(rendered)) for key in value)


@EVERY
def test_secrets_are_names(render: Renderer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_never-to-be-seen")
    rendered = render(training(2), CONFIG, ())
    assert "never-to-be-seen" not in "".join(text for _, text in rendered.files)
    for pod in pods(rendered):
        assert {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "seatrial", "key": "HF_TOKEN"}}} in pod[
            "containers"
        ][0]["env"]


@EVERY
def test_other_settings_are_another_config_map(render: Renderer) -> None:
    one, other = (of_kind("ConfigMap", render(training(2), text, ())) for text in (CONFIG, f"{CONFIG}# more\n"))
    assert one["metadata"]["name"] != other["metadata"]["name"]
    assert one["immutable"]
    assert any(
        volume.get("configMap") == {"name": one["metadata"]["name"]}
        for volume in pods(render(training(2), CONFIG, ()))[0]["volumes"]
    )


@EVERY
def test_a_claim_outlives_its_job_and_is_found_by_the_next(render: Renderer) -> None:
    one, other = (of_kind("PersistentVolumeClaim", render(training(2, name=name), CONFIG, ())) for name in ("a", "b"))
    assert one == other
    assert "app.kubernetes.io/instance" not in one["metadata"]["labels"]


@EVERY
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"image": None}, "job.image is not set"),
        ({"mounts": ({"path": "/mnt/data"},)}, r"job\.mounts\.0\.size_gib is not set"),
        (
            {"mounts": ({"path": "/mnt/disk", "kind": "disk", "source": "one"},)},
            r"job\.mounts\.0\.source = 'one': a disk is one node's, and this job has 2; .* or set kind: shared",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(render: Renderer, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words) as refused:
        render(training(2, **changes), CONFIG, ())
    assert "\n" not in str(refused.value)


@EVERY
def test_settings_that_are_too_long_are_refused(render: Renderer) -> None:
    with pytest.raises(SettingsError, match="1,000,000 bytes"):
        render(training(2), "x" * 1_000_000, ())


def test_trainer_has_no_elastic_jobs() -> None:
    with pytest.raises(SettingsError, match=r"job\.min_nodes = 1: .* take pytorchjob"):
        render_trainjob(training(2, min_nodes=1), CONFIG)


@EVERY
@pytest.mark.parametrize(
    ("changes", "security"),
    [
        ({}, {"privileged": True, "runAsUser": 0}),
        (
            {"kubernetes": {"rdma": {"rdma/ib": 8}}},
            {"allowPrivilegeEscalation": False, "runAsUser": 0, "capabilities": {"add": ["IPC_LOCK"]}},
        ),
        ({"fabric": "ethernet"}, {"allowPrivilegeEscalation": False}),
        ({"nodes": 1}, {"allowPrivilegeEscalation": False}),
    ],
)
def test_a_pod_may_no_more_than_its_fabric_needs(
    render: Renderer, changes: dict[str, Any], security: dict[str, Any]
) -> None:
    rendered = render(training(**{"nodes": 2, **changes}), CONFIG, ())
    assert container(rendered)["securityContext"] == security
    assert container(rendered)["resources"]["limits"].get("rdma/ib") == ("8" if "kubernetes" in changes else None)


@EVERY
def test_nodes_that_failed_are_not_used(render: Renderer) -> None:
    for pod in pods(render(training(2), CONFIG, ("a", "b"))):
        (term,) = pod["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert [(field["operator"], field["values"]) for field in term["matchFields"]] == [
            ("NotIn", ["a"]),
            ("NotIn", ["b"]),
        ]


@EVERY
def test_a_node_of_the_job_is_a_machine(render: Renderer) -> None:
    for pod in pods(render(training(2), CONFIG, ())):
        (apart,) = pod["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert apart["topologyKey"] == "kubernetes.io/hostname"


@EVERY
@pytest.mark.parametrize("queue", [None, "gpus"])
def test_nodes_that_are_near_each_other_are_preferred(render: Renderer, queue: str | None) -> None:
    """By the scheduler; or by Kueue, which has all pods in view."""
    rendered = render(training(2, kubernetes={"topology": "example.com/rack", "queue": queue}), CONFIG, ())
    for pod in pods(rendered):
        assert ("podAffinity" in pod["affinity"]) == (queue is None)
    text = rendered.files[0][1]
    assert ("podset-preferred-topology: example.com/rack" in text) == (queue is not None)
    assert ("kueue.x-k8s.io/queue-name: gpus" in text) == (queue is not None)
