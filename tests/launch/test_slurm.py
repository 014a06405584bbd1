"""Batch scripts as text: what is asked of Slurm, and what is refused."""

import shlex
import subprocess
from typing import Any

import pytest

from seatrial.errors import SettingsError
from seatrial.launch.slurm import render_slurm
from tests.launch import golden_files
from tests.launch.jobs import CONFIG, training


def script(**changes: Any) -> str:
    job = training(2, **changes)
    return render_slurm(job, CONFIG if job.config is not None else None).files[0][1]


@pytest.mark.parametrize("nodes", [1, 2, 64])
def test_golden(nodes: int) -> None:
    excluded = ("worker-3", "worker-17") if nodes == 64 else ()
    golden_files.compare(f"slurm-{nodes}", render_slurm(training(nodes), CONFIG, excluded))


def test_golden_container() -> None:
    golden_files.compare("slurm-container", render_slurm(training(2, venv=None), CONFIG))


def test_golden_nodewise() -> None:
    job = training(64, verb="accept", config=None, arguments=("--budget", "20m"), slurm={"nodewise": True})
    golden_files.compare("slurm-nodewise", render_slurm(job, None))


@pytest.mark.parametrize("changes", [{}, {"venv": None}, {"verb": "accept", "config": None, "arguments": ()}])
def test_bash_can_read_it(changes: dict[str, Any]) -> None:
    checked = subprocess.run(["bash", "-n"], input=script(**changes), capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"time_limit_hours": 30.5}, "#SBATCH --time=1-06:30:00"),
        ({"time_limit_hours": 0.001}, "#SBATCH --time=0-00:01:00"),
        ({"cpus_per_node": 32}, "#SBATCH --cpus-per-task=32"),
        ({"memory_gib": 900}, "#SBATCH --mem=900G"),
        ({"min_nodes": 1}, "#SBATCH --nodes=1-2"),
        ({"slurm": {"partition": "h100 low"}}, "#SBATCH --partition='h100 low'"),
        ({"grace_seconds": 300}, "#SBATCH --signal=B:USR1@300"),
        ({"secrets": ()}, "#SBATCH --export=NONE"),
        ({"retries": 3}, "    if [[ $asked != stay && ${SLURM_RESTART_COUNT:-0} -lt 3 &&"),
        ({"verb": "accept", "config": None, "arguments": ()}, "0|1|2|3|76|78) ;;  # done, or no restart can help"),
    ],
)
def test_settings_become_lines(changes: dict[str, Any], line: str) -> None:
    assert line in script(**changes).splitlines()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"venv": None, "image": None}, "job.venv and job.image are both missing"),
        ({"workdir": "/a\nb"}, "job.workdir = '/a\\\\nb': has more than one line"),
        ({"workdir": "work"}, "job.workdir work: Slurm needs a whole path"),
        ({"workdir": "/mnt/data/100%"}, "job.workdir /mnt/data/100%: Slurm takes %"),
        ({"mounts": ({"path": "/data", "source": "/mnt/x"},)}, "job.mounts: /mnt/x at /data: only a container"),
        ({"venv": None, "workdir": "/elsewhere"}, "job.workdir /elsewhere: lies under no mount"),
        ({"venv": None, "mounts": ({"path": "/mnt/data"}, {"path": "/a:b"})}, "pyxis cannot mount"),
        ({"slurm": {"nodewise": True}}, "job.slurm.nodewise: only job.verb accept"),
    ],
)
def test_what_slurm_cannot_do_is_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError, match=words):
        script(**changes)


@pytest.mark.parametrize(
    ("image", "taken"),
    [
        ("ghcr.io/team/seatrial:0.1", "ghcr.io#team/seatrial:0.1"),
        ("localhost:5000/seatrial", "localhost:5000#seatrial"),
        ("docker://nvcr.io/nvidia/pytorch:25.06-py3", "nvcr.io#nvidia/pytorch:25.06-py3"),
        ("nvcr.io#nvidia/pytorch:25.06-py3", "nvcr.io#nvidia/pytorch:25.06-py3"),
        ("team/seatrial:0.1", "team/seatrial:0.1"),
        ("ubuntu", "ubuntu"),
        ("/mnt/data/images/seatrial.sqsh", "/mnt/data/images/seatrial.sqsh"),
        ("./seatrial.sqsh", "./seatrial.sqsh"),
    ],
)
def test_an_image_is_named_as_enroot_reads_it(image: str, taken: str) -> None:
    option = shlex.quote(f"--container-image={taken}")
    assert f"    {option} \\\n" in script(venv=None, image=image)
