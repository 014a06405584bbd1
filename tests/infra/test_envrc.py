"""infra/terraform/.envrc.example, sourced by bash with programs of ours in place of the provider's."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

TERRAFORM = Path(__file__).parents[2] / "infra" / "terraform"
TOKEN = "v1.the-token-itself"
NEBIUS = f"""#!/bin/sh
case "$1 $2" in
  "iam get-access-token") echo {TOKEN} ;;
  "vpc subnet") echo '{{"items": [{{"metadata": {{"id": "vpcsubnet-e00x"}}}}]}}' ;;
esac
"""
FILLED = {
    "NEBIUS_TENANT_ID": "tenant-e00x",
    "NEBIUS_PROJECT_ID": "project-e00x",
    "NEBIUS_REGION": "eu-north1",
    "STATE_BUCKET": "states",
    "AWS_ACCESS_KEY_ID": "the-key-id",
    "AWS_SECRET_ACCESS_KEY": "the-secret-key",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    shutil.copy(TERRAFORM / ".envrc.example", tmp_path / ".envrc")
    programs = {"nebius": NEBIUS, "terraform": "#!/bin/sh\n"}
    (tmp_path / "bin").mkdir()
    for name, text in programs.items():
        (tmp_path / "bin" / name).write_text(text)
        (tmp_path / "bin" / name).chmod(0o755)
    return tmp_path


def source(folder: Path, **settings: str) -> subprocess.CompletedProcess[str]:
    """Source .envrc, and print what it set."""
    if settings:
        (folder / ".env").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    script = 'source ./.envrc; code=$?; echo "$TF_VAR_iam_token,$TF_VAR_subnet_id,$TF_VAR_project_id"; exit $code'
    environment = {"PATH": path, "HOME": str(folder)}
    command = ["bash", "-c", script]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60)


def test_a_sound_account(folder: Path) -> None:
    done = source(folder, **FILLED)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{TOKEN},vpcsubnet-e00x,project-e00x\n"
    backend = (folder / "backend.hcl").read_text()
    assert 'bucket = "states"' in backend
    for secret in (TOKEN, FILLED["AWS_ACCESS_KEY_ID"], FILLED["AWS_SECRET_ACCESS_KEY"]):
        assert secret not in backend
        assert secret not in done.stderr


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "cp .env.example .env"),
        ({**FILLED, "STATE_BUCKET": ""}, "does not set STATE_BUCKET"),
        ({**FILLED, "NEBIUS_PROJECT_ID": "project-..."}, "does not set NEBIUS_PROJECT_ID"),
        ({**FILLED, "NEBIUS_TENANT_ID": "e00x"}, "must start with tenant-"),
    ],
)
def test_what_is_missing_is_named(folder: Path, settings: dict[str, str], words: str) -> None:
    done = source(folder, **settings)
    assert done.returncode == 1
    assert words in done.stderr
    assert done.stdout == ",,\n"


@pytest.mark.parametrize(
    ("nebius", "words"),
    [
        ("#!/bin/sh\nexit 1\n", "nebius gives no token"),
        (NEBIUS.replace("vpcsubnet-e00x", "").replace('{"metadata": {"id": ""}}', ""), "no subnet in project-e00x"),
    ],
)
def test_an_account_that_gives_nothing(folder: Path, nebius: str, words: str) -> None:
    (folder / "bin" / "nebius").write_text(nebius)
    done = source(folder, **FILLED)
    assert done.returncode == 1
    assert words in done.stderr


def test_the_example_holds_no_value_that_works() -> None:
    lines = [line for line in (TERRAFORM / ".env.example").read_text().splitlines() if line and line[0] != "#"]
    values = dict(line.split("=", 1) for line in lines)
    assert FILLED.keys() <= values.keys()
    assert all(not value or value.endswith("...") for name, value in values.items() if name != "NEBIUS_REGION")


def test_nothing_that_is_filled_in_is_committed() -> None:
    ignored = (TERRAFORM / ".gitignore").read_text().split()
    assert {".env", ".envrc", "backend.hcl", "terraform.tfvars", "*.tfstate*"} <= set(ignored)
