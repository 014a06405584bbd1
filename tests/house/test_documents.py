"""Every path, command, option and target that a document names exists."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main

from seatrial.cli.main import app
from seatrial.rundir import RunDir

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "seatrial"
DOCUMENTS = sorted(
    [
        *(ROOT / name for name in ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md")),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "recipes").rglob("*.md"),
        *(PACKAGE / "assets").rglob("*.md"),
    ]
)
# Results speak of what was, so only their links must hold: the raw records that every number rests on.
RESULTS = sorted((ROOT / "results").rglob("*.md"))
FOLDERS = ("src", "tests", "configs", "examples", "docs", "recipes", "results", "bench", "infra", ".ci", ".github")

LINK = re.compile(r"\]\(([^)\s#]+)")
FENCE = re.compile(r"^```[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`\n]+)`")
# A command ends where a shell would end it, or a comment begins.
SEATRIAL = re.compile(r"(?:^|\s)seatrial +([^|&;#\n]+)", re.MULTILINE)
MAKE = re.compile(r"^(?:\$ )?make +([^|&;#\n]+)", re.MULTILINE)


def name_of(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


every_document = pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)


def code(text: str) -> list[str]:
    """What a document sets in code: fenced blocks, continued lines joined, and spans."""
    blocks = [block.replace("\\\n", " ") for block in FENCE.findall(text)]
    return [*blocks, *SPAN.findall(FENCE.sub("", text))]


def missing_links(text: str, folder: Path) -> Iterator[str]:
    for target in LINK.findall(text):
        if "://" not in target and not (folder / target).exists():
            yield target


def missing_paths(text: str) -> Iterator[str]:
    """Paths from the root, and those of modules as they are written for short, such as train/loop.py."""
    for fragment in code(text):
        for word in re.findall(r"[\w./-]+", fragment):
            from_root = word.split("/")[0] in FOLDERS and "/" in word
            of_package = re.fullmatch(r"[a-z_]+(/\w+)+\.py", word) is not None
            if (from_root or of_package) and not ((ROOT / word).exists() or (PACKAGE / word).exists()):
                yield word


def wrong_commands(text: str) -> Iterator[str]:
    for fragment in code(text):
        for line in SEATRIAL.findall(fragment):
            if problem := _problem_of(shlex.split(line)):
                yield f"seatrial {line.strip()}: {problem}"


def _problem_of(words: list[str]) -> str:
    command: Any = typer.main.get_command(app)
    options = _options(command)
    is_value = False
    for word in words:
        if is_value:
            is_value = False
        elif word.startswith("-") and word != "-":
            name, equals, _ = word.partition("=")
            if name not in options:
                return f"no option {name}"
            is_value = options[name] and not equals
        elif hasattr(command, "commands"):
            if word not in command.commands:
                return f"no verb {word}"
            command = command.commands[word]
            options |= _options(command)
    return ""


def _options(command: Any) -> dict[str, bool]:
    """Names of a command's options, and whether each is followed by a value."""
    own = {name: not getattr(option, "is_flag", False) for option in command.params for name in option.opts}
    return {"--help": False, "-h": False, **own}


def wrong_targets(text: str) -> Iterator[str]:
    targets = re.findall(r"^([a-z][\w-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for fragment in code(text):
        for line in MAKE.findall(fragment):
            yield from (word for word in shlex.split(line) if "=" not in word and word not in targets)


@pytest.mark.parametrize("document", [*DOCUMENTS, *RESULTS], ids=name_of)
def test_links(document: Path) -> None:
    missing = list(missing_links(document.read_text(), document.parent))
    assert not missing, f"{name_of(document)} links to {missing}, which do not exist"


@every_document
def test_paths(document: Path) -> None:
    missing = list(missing_paths(document.read_text()))
    assert not missing, f"{name_of(document)} names {missing}, which do not exist"


@every_document
def test_commands(document: Path) -> None:
    wrong = list(wrong_commands(document.read_text()))
    assert not wrong, f"{name_of(document)}: " + "; ".join(wrong)


@every_document
def test_make_targets(document: Path) -> None:
    wrong = list(wrong_targets(document.read_text()))
    assert not wrong, f"{name_of(document)} runs make {wrong}, which the Makefile does not know"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("`seatrial trane x.yaml`", ["seatrial trane x.yaml: no verb trane"]),
        ("```\nseatrial train --fast \\\n  x.yaml\n```", ["seatrial train --fast    x.yaml: no option --fast"]),
        ("```\ntorchrun -m seatrial export r --out o --merged  # both\n```", []),
        ("`seatrial data prepare --in=x --source xlam | tee log`", []),
        ("`seatrial data bake`", ["seatrial data bake: no verb bake"]),
        ("`seatrial accept --budget 3m --json -`", []),
    ],
)
def test_commands_are_told_apart(text: str, found: list[str]) -> None:
    assert list(wrong_commands(text)) == found


def test_paths_and_targets_are_told_apart() -> None:
    assert list(missing_paths("`src/seatrial/train/lop.py` and `train/loop.py`, `runs/demo/x`")) == [
        "src/seatrial/train/lop.py"
    ]
    assert list(wrong_targets("`make demo test` and `make tset X=1`")) == ["tset"]


def test_architecture_names_every_file_of_a_run() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    run = RunDir(Path("run"))
    files = [value.name for name in vars(RunDir) if isinstance(value := getattr(run, name), Path) and name != "path"]
    assert len(files) > 5
    assert [name for name in files if f"`{name}" not in text] == []


def test_architecture_gives_a_reason_for_every_dependency() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = [re.split(r"[<>=]", line)[0] for line in lines]
    assert [name for name in names if f"`{name}`" not in text] == []
