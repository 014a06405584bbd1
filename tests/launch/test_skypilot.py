"""Tasks of SkyPilot: what SkyPilot itself reads in them, and what their ``run`` does with any text."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.errors import SettingsError
from seatrial.launch.job import Rendered
from seatrial.launch.skypilot import render_skypilot
from tests.launch import golden_files
from tests.launch.jobs import CONFIG, NASTY, training
from tests.launch.requirements import lacking

CHECK = Path(__file__).parent / "check_sky.py"
OWN_SKY = Path(__file__).parents[2] / ".venv-sky" / "bin" / "sky"


def task(rendered: Rendered) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(rendered.files[0][1])
    return found


def read_by_sky(folder: Path, kind: str, text: str) -> "subprocess.CompletedProcess[str]":
    """SkyPilot needs versions of packages that seatrial does not: it lives in an environment of its own."""
    program = shutil.which("sky") or (str(OWN_SKY) if OWN_SKY.exists() else None)
    if program is None:
        lacking("SkyPilot is not there: python -m venv .venv-sky && .venv-sky/bin/pip install 'skypilot[kubernetes]'")
    file = folder / f"{kind}.yaml"
    file.write_text(text)
    python = Path(program).parent / "python"
    argv = [str(python), str(CHECK), kind, str(file)]
    environment = {**os.environ, "HOME": str(folder), "SKYPILOT_DISABLE_USAGE_COLLECTION": "1"}
    return subprocess.run(argv, capture_output=True, text=True, timeout=240, check=False, env=environment)


@pytest.mark.parametrize("nodes", [1, 2, 64])
def test_golden(nodes: int) -> None:
    excluded = ("worker-3", "worker-17") if nodes == 64 else ()
    golden_files.compare(f"skypilot-{nodes}", render_skypilot(training(nodes), CONFIG, excluded))


def test_skypilot_reads_the_task(tmp_path: Path) -> None:
    job = training(64, memory_gib=1500, cpus_per_node=120, kubernetes={"queue": "gpus"})
    rendered = render_skypilot(job, CONFIG, ("node-7",))
    read = read_by_sky(tmp_path, "task", rendered.files[0][1])
    assert read.returncode == 0, read.stderr
    assert json.loads(read.stdout) == {
        "run": task(rendered)["run"],
        "nodes": 64,
        "accelerators": {"H100": 8},
        "image": {"null": "docker:registry.example/seatrial:0.1"},
        "recovery": {"strategy": "FAILOVER", "max_restarts_on_errors": 0, "recover_on_exit_codes": [75]},
        "volumes": {"/mnt/data": "seatrial-mnt-data"},
        "network_tier": "best",
    }


def test_skypilot_sees_a_wrong_field_of_a_pod(tmp_path: Path) -> None:
    text = render_skypilot(training(2), CONFIG).files[0][1]
    wrong = read_by_sky(tmp_path, "task", text.replace("terminationGracePeriodSeconds", "terminationGracePeriod"))
    assert wrong.returncode == 1
    assert "terminationGracePeriod" in wrong.stderr


def test_skypilot_reads_the_volume_and_sees_a_wrong_field(tmp_path: Path) -> None:
    (_, (_, volume)) = render_skypilot(training(2), CONFIG).files
    assert read_by_sky(tmp_path, "volume", volume).returncode == 0
    wrong = read_by_sky(tmp_path, "volume", volume.replace("size:", "sise:"))
    assert wrong.returncode == 1
    assert "sise" in wrong.stderr


def test_what_skypilot_would_not_notice() -> None:
    """It takes any key in job_recovery, in a volume's config and in pod_config."""
    job = training(
        2,
        mounts=({"path": "/mnt/data", "size_gib": 2048, "storage_class": "csi"},),
        kubernetes={"queue": "gpus", "image_pull_secret": "registry"},
    )
    rendered = render_skypilot(job, CONFIG, ("a",))
    assert set(task(rendered)["resources"]["job_recovery"]) == {
        "strategy",
        "max_restarts_on_errors",
        "recover_on_exit_codes",
    }
    volume = yaml.safe_load(rendered.files[1][1])
    assert volume["config"] == {"storage_class_name": "csi", "access_mode": "ReadWriteMany"}
    assert task(rendered)["config"]["kubernetes"] == {
        "kueue": {"local_queue_name": "gpus"},
        "pod_config": {
            "spec": {
                "terminationGracePeriodSeconds": 120,
                "containers": [
                    {"env": [{"name": "SEATRIAL_NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}]}
                ],
                "imagePullSecrets": [{"name": "registry"}],
                "affinity": {
                    "nodeAffinity": {
                        "requiredDuringSchedulingIgnoredDuringExecution": {
                            "nodeSelectorTerms": [
                                {"matchFields": [{"key": "metadata.name", "operator": "NotIn", "values": ["a"]}]}
                            ]
                        }
                    }
                },
            }
        },
    }


def test_secrets_are_names_that_the_command_line_passes_on() -> None:
    rendered = render_skypilot(training(2), CONFIG)
    assert task(rendered)["secrets"] == {"HF_TOKEN": None}
    assert rendered.submit[-1][-3:-1] == ("--secret", "HF_TOKEN")


@settings(max_examples=25, deadline=None)
@given(word=NASTY, value=NASTY, config=NASTY, folder=st.sampled_from(["a b", "$HOME", "a'b", 'a"b', "a\nb", "`a`"]))
def test_text_of_a_user_arrives_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, word: str, value: str, config: str, folder: str
) -> None:
    here = tmp_path_factory.mktemp("sky")
    (here / "python").write_text(
        '#!/bin/bash\ncat "$4" >config\nprintf "%s\\0" "$@" "$TEXT" "$PET_MASTER_ADDR" >told\n'
    )
    (here / "python").chmod(0o755)
    job = training(2, arguments=(word,), environment={"TEXT": value}, workdir=here / folder, mounts=())
    run = task(render_skypilot(job, config))["run"]
    sky = {"SKYPILOT_NUM_NODES": "2", "SKYPILOT_NODE_RANK": "1", "SKYPILOT_NODE_IPS": "10.0.0.1\n10.0.0.2"}
    environment = {"PATH": f"{here}:{os.environ['PATH']}", **sky}
    subprocess.run(["bash", "-c", run], env=environment, check=True, timeout=60)
    told = (here / folder / "told").read_bytes().decode().split("\0")
    assert (told[5], *told[-3:-1]) == (word, value, "10.0.0.1")
    assert (here / folder / "config").read_bytes().decode().removesuffix("\n") == config.removesuffix("\n")
    assert not list(here.rglob("broken"))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"image": None, "venv": None}, "job.image is not set"),
        ({"min_nodes": 1}, r"job\.min_nodes = 1: "),
        ({"mounts": ({"path": "/mnt/data"},)}, r"job\.mounts\.0\.size_gib is not set"),
        ({"skypilot": {"infra": "nebius"}}, r"job\.mounts\.0\.source = None: on nebius SkyPilot mounts buckets"),
        ({"mounts": ({"path": "/mnt/disk", "kind": "disk", "size_gib": 9},)}, r"job\.mounts\.0\.kind = 'disk'"),
        ({"mounts": ({"path": "/s", "kind": "scratch", "source": "/nvme"},)}, r"job\.mounts\.0\.source = '/nvme'"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words) as refused:
        render_skypilot(training(2, **changes), CONFIG)
    assert "\n" not in str(refused.value)


def test_nodes_of_a_cloud_have_no_names_to_exclude() -> None:
    job = training(2, mounts=(), skypilot={"infra": "nebius"})
    with pytest.raises(SettingsError, match=r"job\.acceptance excludes node-7"):
        render_skypilot(job, CONFIG, ("node-7",))


def test_on_a_cloud_a_bucket_is_mounted() -> None:
    job = training(2, mounts=({"path": "/mnt/data", "source": "s3://bucket"},), skypilot={"infra": "nebius"})
    rendered = task(render_skypilot(job, CONFIG))
    assert rendered["file_mounts"] == {"/mnt/data": {"source": "s3://bucket", "mode": "MOUNT_CACHED"}}
    assert "config" not in rendered
