"""Our Terraform, planned against the names and types of the recipes that it calls. No provider, no network.

The recipes themselves cannot be had offline: shadow/ declares what they take, and an override puts it in their place.
"""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TERRAFORM = ROOT / "infra" / "terraform"
SHADOW = Path(__file__).parent / "shadow"
RECIPES = ("soperator", "kubernetes")
ACCOUNT = {
    "TF_VAR_tenant_id": "tenant-e00x",
    "TF_VAR_project_id": "project-e00x",
    "TF_VAR_region": "eu-north1",
    "TF_VAR_subnet_id": "vpcsubnet-e00x",
    "TF_VAR_iam_token": "not-a-token",
}

every_recipe = pytest.mark.parametrize("recipe", RECIPES)


@pytest.fixture
def terraform() -> str:
    program = shutil.which("terraform")
    if program is None:
        pytest.skip("no terraform here, and no package of this system has it")
    return program


def run(program: str, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, **ACCOUNT, "TF_IN_AUTOMATION": "1", "CHECKPOINT_DISABLE": "1"}
    command = [program, f"-chdir={folder}", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


def planned(
    program: str, folder: Path, recipe: str, *, call: tuple[str, str] = ("", ""), variable: str = ""
) -> subprocess.CompletedProcess[str]:
    """What a plan of ``recipe`` says with the shadow in the recipe's place.

    Args:
        call: what is written in main.tf, and what stands there instead.
        variable: a line of terraform.tfvars that is another than the example's.
    """
    here = folder / recipe
    shutil.copytree(TERRAFORM / recipe, here)
    shutil.copytree(SHADOW / recipe, here / "shadow")
    main = here / "main.tf"
    text, count = re.subn(r'source = "git::[^"]+"', 'source = "./shadow"', main.read_text())
    assert count == 1
    assert call[0] in text
    main.write_text(text.replace(*call) if call[0] else text)
    (here / "here_override.tf").write_text('terraform {\n  required_version = ">= 1.5"\n  backend "local" {}\n}\n')
    (here / "said.tf").write_text(f'output "said" {{\n  value = module.{recipe}.said\n}}\n')
    example = (here / "terraform.tfvars.example").read_text().splitlines()
    kept = [line for line in example if not variable or line.split(" ")[0] != variable.split(" ")[0]]
    (here / "terraform.tfvars").write_text("\n".join([*kept, variable, ""]))
    prepared = run(program, here, "init", "-no-color", "-input=false")
    return prepared if prepared.returncode else run(program, here, "plan", "-no-color", "-input=false")


def told(done: subprocess.CompletedProcess[str]) -> str:
    """The errors of a plan, whose frames and line breaks do not matter."""
    return " ".join(re.sub(r"[│╷╵]", " ", done.stderr).split())


@every_recipe
def test_files_are_formatted(terraform: str, recipe: str) -> None:
    for folder in (TERRAFORM / recipe, SHADOW / recipe):
        done = run(terraform, folder, "fmt", "-check", "-diff")
        assert done.returncode == 0, done.stdout


@every_recipe
def test_the_example_is_what_the_recipe_takes(terraform: str, tmp_path: Path, recipe: str) -> None:
    plan = planned(terraform, tmp_path, recipe)
    assert plan.returncode == 0, plan.stderr
    assert "undeclared" not in plan.stdout + plan.stderr  # of a name that is none, Terraform only warns
    assert re.search(r"(platform|gpu_nodes_platform)\s+= \"gpu-h100-sxm\"", plan.stdout)
    assert "8gpu-128vcpu-1600gb" in plan.stdout
    assert re.search(r"(shared|size_gibibytes)\s+= 2048", plan.stdout)
    assert re.search(r"(fabric|infiniband_fabric)\s+= \"fabric-3\"", plan.stdout)


@pytest.mark.parametrize(
    ("written", "former", "words"),
    [
        (
            "filesystem_jail_submounts",
            "filestore_jail_submounts",
            'An argument named "filestore_jail_submounts" is not expected here',
        ),
        ('name        = "worker"', "", 'attribute "name" is required'),
        ("var.platform", '"gpu-h200"', "no such platform"),
        ("node_local_image_disk = { enabled = false }", "", 'attribute "node_local_image_disk" is required'),
        ("node_group_version", "# node_group_version", 'The argument "node_group_version" is required'),
    ],
)
def test_the_form_of_former_tutorials_is_refused(
    terraform: str, tmp_path: Path, written: str, former: str, words: str
) -> None:
    refused = planned(terraform, tmp_path, "soperator", call=(written, former))
    assert refused.returncode != 0
    assert words in told(refused)


def test_a_size_in_bytes_is_refused(terraform: str, tmp_path: Path) -> None:
    call = ("filestore_disk_size_gibibytes", "filestore_disk_size")
    refused = planned(terraform, tmp_path, "kubernetes", call=call)
    assert refused.returncode != 0
    assert 'An argument named "filestore_disk_size" is not expected here' in told(refused)


@pytest.mark.parametrize(
    ("recipe", "wrong", "words"),
    [
        ("soperator", 'preset = "1gpu-16vcpu-200gb"', "has no InfiniBand"),
        ("kubernetes", 'preset = "1gpu-16vcpu-200gb"', "has no InfiniBand"),
        ("soperator", 'platform = "gpu-h200"', "such as gpu-h100-sxm or gpu-h200-sxm"),
        ("soperator", 'infiniband_fabric = ""', "infiniband_fabric must be named"),
        ("soperator", "ssh_public_keys = []", "at least one public key"),
        ("soperator", 'name = "My Cluster"', "lower-case letters"),
    ],
)
def test_what_would_be_found_too_late_is_refused_at_once(
    terraform: str, tmp_path: Path, recipe: str, wrong: str, words: str
) -> None:
    done = planned(terraform, tmp_path, recipe, variable=wrong)
    assert done.returncode != 0
    assert words in told(done)


@every_recipe
def test_the_recipe_is_pinned_and_the_shadow_is_of_the_same_commit(recipe: str) -> None:
    (ref,) = re.findall(r"\?ref=(\w+)", (TERRAFORM / recipe / "main.tf").read_text())
    assert re.fullmatch(r"[0-9a-f]{40}", ref)
    assert ref in (SHADOW / recipe / "variables.tf").read_text(), "write the shadow anew when the recipe moves"


@every_recipe
def test_no_secret_has_a_value(recipe: str) -> None:
    for file in (TERRAFORM / recipe).iterdir():
        found = re.findall(r'(?i)(?:token|password|secret)\w*\s*=\s*"([^"]*)"', file.read_text())
        assert not any(found), f"{file.name}: {json.dumps(found)}"
