"""The script that starts a container, run for real with a stand-in for docker that writes down what it was told."""

import json
import os
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.errors import SettingsError
from seatrial.launch.docker import render_docker
from tests.launch import golden_files
from tests.launch.jobs import CONFIG, NASTY, training

STAND_IN = """\
#!/usr/bin/env python3
import json, os, sys
if sys.argv[1] == "run":
    told = {"words": sys.argv[2:], "settings": None}
    for word in sys.argv:
        if word.startswith("type=bind,source=") and word.endswith("config.yaml,readonly"):
            told["settings"] = open(word.split(",")[1].removeprefix("source="), newline="").read()
    json.dump(told, open(os.environ["TOLD"], "w"))
"""


def run_script(folder: Path, text: str, *arguments: str) -> dict[str, Any]:
    """What docker was told."""
    programs = folder / "programs"
    programs.mkdir(parents=True, exist_ok=True)
    (programs / "docker").write_text(STAND_IN)
    (programs / "docker").chmod(0o755)
    (folder / "job.sh").write_text(text)
    told = folder / "told.json"
    told.unlink(missing_ok=True)
    subprocess.run(
        ["bash", str(folder / "job.sh"), *arguments],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "TOLD": str(told), "HF_TOKEN": "hf_secret"},
        check=True,
        timeout=60,
    )
    found: dict[str, Any] = json.loads(told.read_text())
    return found


def script(nodes: int = 1, **changes: Any) -> str:
    return render_docker(training(nodes, **changes), CONFIG).files[0][1]


def option_values(words: list[str], option: str) -> list[str]:
    return [value for name, value in pairwise(words) if name == option]


@pytest.mark.parametrize("nodes", [1, 2, 64])
def test_golden(nodes: int) -> None:
    excluded = ("worker-3", "worker-17") if nodes == 64 else ()
    golden_files.compare(f"docker-{nodes}", render_docker(training(nodes), CONFIG, excluded))


def test_one_node_is_told_its_place_and_its_settings(tmp_path: Path) -> None:
    told = run_script(tmp_path, script())
    assert told["settings"] == CONFIG
    assert option_values(told["words"], "--user") == [f"{os.getuid()}:{os.getgid()}"]
    assert {"PET_NNODES=1", "PET_NODE_RANK=0", "PET_NPROC_PER_NODE=8", "HF_TOKEN"} <= set(
        option_values(told["words"], "--env")
    )
    assert told["words"][told["words"].index("registry.example/seatrial:0.1") + 1 :][:4] == [
        "-m",
        "seatrial.launch.node",
        "train",
        "/etc/seatrial/config.yaml",
    ]


def test_each_of_several_nodes_is_told_which_it_is(tmp_path: Path) -> None:
    told = run_script(tmp_path, script(2), "1", "gpu-a")
    assert {"PET_NNODES=2", "PET_NODE_RANK=1", "PET_MASTER_ADDR=gpu-a"} <= set(option_values(told["words"], "--env"))
    assert option_values(told["words"], "--device") == ["/dev/infiniband"]
    assert option_values(told["words"], "--network") == ["host"]


def test_a_secret_is_a_name(tmp_path: Path) -> None:
    told = run_script(tmp_path, script())
    assert "hf_secret" not in json.dumps(told) + (tmp_path / "job.sh").read_text()


@settings(max_examples=25, deadline=None)
@given(word=NASTY, value=NASTY, config=NASTY, path=st.sampled_from(["/a b", "/a,b", '/a"b', "/$HOME", "/a'b", "/a\nb"]))
def test_text_of_a_user_arrives_as_it_is(
    tmp_path_factory: pytest.TempPathFactory, word: str, value: str, config: str, path: str
) -> None:
    folder = tmp_path_factory.mktemp("docker")
    job = training(1, arguments=(word,), environment={"TEXT": value}, workdir=path, mounts=({"path": path},))
    told = run_script(folder, render_docker(job, config).files[0][1])
    assert word in told["words"]
    assert f"TEXT={value}" in option_values(told["words"], "--env")
    assert option_values(told["words"], "--workdir") == [path]
    assert told["settings"].removesuffix("\n") == config.removesuffix("\n")


@pytest.mark.parametrize("nodes", [1, 2])
def test_docker_understands_every_option(tmp_path: Path, nodes: int) -> None:
    """Its client reads all of them before it looks for a daemon, of which there is none where this points it."""
    client = shutil.which("docker")
    if client is None:
        pytest.skip("docker is not installed: its client reads options even where no daemon runs")
    words = run_script(tmp_path, script(nodes, mounts=({"path": "/a,b"},)), "0", "here")["words"]
    nowhere = {**os.environ, "DOCKER_HOST": f"unix://{tmp_path}/no.sock"}
    ran = subprocess.run([client, "run", *words], env=nowhere, capture_output=True, text=True, timeout=60)
    assert "daemon" in ran.stderr or "server OS" in ran.stderr, ran.stderr
    wrong = subprocess.run([client, "run", "--wrong", *words], env=nowhere, capture_output=True, text=True, timeout=60)
    assert "unknown flag" in wrong.stderr


@pytest.mark.parametrize(
    ("changes", "words"), [({"image": None}, "job.image is not set"), ({"min_nodes": 1}, r"job\.min_nodes = 1: ")]
)
def test_what_cannot_be_is_refused_in_a_line(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words) as refused:
        script(2, **changes)
    assert "\n" not in str(refused.value)
