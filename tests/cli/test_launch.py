"""``seatrial launch``, as it is typed: what it shows, what it refuses, and jobs that run on this machine."""

import json
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from seatrial.cli.main import app
from seatrial.errors import SeatrialError, UsageError
from seatrial.launch.plan import TARGETS
from tests.small import settings_for, write_config, write_model, write_rows

ROOT = Path(__file__).parents[2]
SECRET = "trial-45c48cce2e2d7fbd"


def launch(*words: object) -> Result:
    return CliRunner().invoke(app, ["launch", *(str(word) for word in words)])


def write_job(folder: Path, **fields: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    job = {
        "name": "trial",
        "nodes": 2,
        "gpus_per_node": 0,
        "processes_per_node": 1,
        "cpus_per_node": 1,
        "workdir": str(folder),
        "fabric": "none",
        **fields,
    }
    (folder / "job.yaml").write_text(json.dumps({"job": job}))
    return folder / "job.yaml"


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").glob("*job*.yaml")))
def test_examples_can_be_rendered(target: str, example: str) -> None:
    done = launch(target, ROOT / "examples" / example, "--dry-run")
    if isinstance(done.exception, UsageError):  # a job of this machine names no image
        assert "job.image" in str(done.exception) or "job.venv" in str(done.exception)
        assert example == "tiny-job.yaml"
        return
    assert done.exit_code == 0, done.output
    assert "seatrial.launch.node" in done.stdout


def test_one_file_from_two_to_64_nodes() -> None:
    job = ROOT / "examples" / "llama-lora-job.yaml"
    for nodes in (2, 64):
        done = launch("slurm", job, f"job.nodes={nodes}")
        assert f"#SBATCH --nodes={nodes}\n" in done.stdout


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["job.nods=3"], "did you mean job.nodes?"),
        (["--dry-run", "--submit"], "give one of them"),
        (["job.config=nowhere.yaml"], "no such settings file"),
    ],
)
def test_mistakes_are_told_before_anything_is_rendered(words: list[str], said: str) -> None:
    done = launch("torchrun", ROOT / "examples" / "tiny-job.yaml", *words)
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)
    assert done.stdout == ""


def test_a_missing_program_is_named_with_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = write_job(tmp_path, verb="command", arguments=["true"], venv=sys.prefix)
    monkeypatch.setenv("PATH", str(tmp_path))
    done = launch("slurm", job, "--submit", "--state", tmp_path / "state")
    assert isinstance(done.exception, UsageError)
    assert "sinfo: no such program" in done.output
    assert "login node" in done.output


def test_nodes_on_this_machine_keep_secrets_and_are_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two nodes train here; the job is listed, its results are fetched, and the secret it had stands nowhere."""
    monkeypatch.setenv("HF_TOKEN", SECRET)
    state = ["--state", tmp_path / "state"]
    write_model(tmp_path / "model")
    write_rows(tmp_path / "data", rows=8)
    write_config(settings_for(tmp_path, optimizer={"steps": 4, "packs_per_step": 2}), tmp_path / "train.yaml")
    job = write_job(tmp_path, config="train.yaml", secrets=["HF_TOKEN"])
    done = launch("torchrun", job, "--submit", *state)
    assert done.exit_code == 0, done.output
    assert "step 4/4" in (tmp_path / "state" / "torchrun-trial" / "node-0.log").read_text()

    (listed,) = json.loads(launch("list", "--json", *state).stdout)
    assert (listed["target"], listed["job"]["name"]) == ("torchrun", "trial")
    assert "on this machine" in launch("status", *state).stdout
    fetched = launch("fetch", "trial", "--to", tmp_path / "fetched", *state)
    assert fetched.exit_code == 0, fetched.output
    assert (tmp_path / "fetched" / "adapter" / "adapter_model.safetensors").is_file()
    assert not (tmp_path / "fetched" / "checkpoints").exists()
    assert CliRunner().invoke(app, ["report", str(tmp_path / "run")]).exit_code == 0
    assert (tmp_path / "run" / "report.html").is_file()
    found = [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert found == []


def test_a_node_that_fails_gives_its_code(tmp_path: Path) -> None:
    script = 'test "$PET_NODE_RANK" = 1 || exit 0; exit 76'
    job = write_job(tmp_path, verb="command", arguments=["sh", "-c", script])
    started = time.monotonic()
    done = launch("torchrun", job, "--submit", "--state", tmp_path / "state")
    assert done.exit_code == 76
    assert time.monotonic() - started < 60


def test_a_secret_that_is_not_there_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    job = write_job(tmp_path, verb="command", arguments=["true"], secrets=["HF_TOKEN"])
    done = launch("torchrun", job, "--submit", "--state", tmp_path / "state")
    assert isinstance(done.exception, UsageError)
    assert "export HF_TOKEN=" in done.output


def test_jobs_that_were_not_launched_from_here(tmp_path: Path) -> None:
    for verb in ("status", "logs", "stop", "fetch"):
        done = launch(verb, "trial", "--state", tmp_path)
        assert isinstance(done.exception, SeatrialError)
        assert "see `seatrial launch list`" in str(done.exception)
