"""The Dockerfiles, held to what makes an image reproducible and safe; and what is copied into them."""

import re
import runpy
import subprocess
from importlib.metadata import requires
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKER = ROOT / "infra" / "docker"
FILES = sorted(DOCKER.glob("*Dockerfile"))

every_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)


def instructions(file: Path) -> list[tuple[str, str]]:
    """Each instruction and its whole text, continued lines joined and comments left out."""
    lines = [line for line in file.read_text().splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(line.split()[0], line.partition(" ")[2]) for line in joined.splitlines() if line.strip()]


def of_kind(file: Path, kind: str) -> list[str]:
    return [text for name, text in instructions(file) if name == kind]


def test_both_are_looked_at() -> None:
    assert [file.name for file in FILES] == ["Dockerfile", "nvidia.Dockerfile"]


@every_file
def test_the_base_is_one_version(file: Path) -> None:
    (base,) = [text.removeprefix("BASE=") for text in of_kind(file, "ARG") if text.startswith("BASE=")]
    tag = base.rpartition(":")[2]
    assert re.fullmatch(r"\d+\.\d+\.\d+-slim-\w+|\d\d\.\d\d-py3", tag), base
    assert all(text.split()[0] == "${BASE}" for text in of_kind(file, "FROM"))


@every_file
def test_it_does_not_run_as_root(file: Path) -> None:
    names = [name for name, _ in instructions(file)]
    assert of_kind(file, "USER") == ["10001"]  # Kubernetes' runAsNonRoot needs a number
    assert "RUN" not in names[names.index("USER") :]
    assert of_kind(file, "ENTRYPOINT") == ['["tini", "-s", "--"]']


@every_file
def test_nothing_is_fetched_past_the_package_managers(file: Path) -> None:
    assert of_kind(file, "ADD") == []
    for text in of_kind(file, "RUN"):
        assert not re.search(r"\b(curl|wget|git clone)\b", text)
        if "apt-get install" in text:
            assert text.startswith("apt-get update")  # of the same layer, else it is an old one
            assert "--no-install-recommends" in text
            assert text.endswith("rm -rf /var/lib/apt/lists/*")


@every_file
def test_no_secret_gets_into_a_layer(file: Path) -> None:
    for name, text in instructions(file):
        assert name not in ("ARG", "ENV") or not re.search(r"(?i)token|secret|password|_key", text), text
    assert ". ." not in of_kind(file, "COPY")


@every_file
def test_what_is_copied_is_there_and_let_through(file: Path) -> None:
    let_through = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    for text in of_kind(file, "COPY"):
        words = [word for word in text.split() if not word.startswith("--")]
        for source in words[:-1] if "--from=" not in text else []:
            assert (ROOT / source).exists(), source
            assert any(Path(source).is_relative_to(path) for path in let_through), source


def test_everything_else_stays_out() -> None:
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert next(line for line in lines if line and line[0] != "#") == "*"


def test_pins_are_installed_from_the_file_that_has_them() -> None:
    installs = [text for text in of_kind(DOCKER / "Dockerfile", "RUN") if "pip install" in text]
    assert len(installs) == 2
    assert all("--constraint constraints.txt" in text for text in installs)


def test_requirements_but_for_torch() -> None:
    other = runpy.run_path(str(DOCKER / "other_requirements.py"))["other_requirements"]
    lines = other(requires("seatrial"), {"torch"})
    names = [re.split(r"[<>=]", line)[0] for line in lines]
    assert {"transformers", "ruamel.yaml", "pydantic"} <= set(names)
    assert not {"torch", "pytest", "peft"} & set(names)


def test_the_self_check_is_a_program() -> None:
    script = DOCKER / "self-check"
    assert script.stat().st_mode & 0o111
    assert subprocess.run(["bash", "-n", script], check=False).returncode == 0
