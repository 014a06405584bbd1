"""Imports point down only. This table is the house; ARCHITECTURE.md draws it."""

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "seatrial"

# Base files, lowest first: each may import those before it, and nothing else of ours.
BASE = ("errors", "stop", "lock", "records", "acceptance", "shell", "settings", "rundir", "hardware", "provenance")

# Folders, lowest floor first, with the folders that each may import. All may import the base. None may name a folder
# of its own floor or of a higher one, so that rings and rivals cannot even be written down here.
FLOORS: tuple[dict[str, set[str]], ...] = (
    {"data": set()},
    {"model": {"data"}},
    {"dist": {"model"}},
    {"train": {"data", "dist", "model"}, "evals": {"data", "model"}, "export": {"data", "dist", "model"}},
    {
        "accept": {"data", "dist", "model", "train"},
        "bench": {"data", "dist", "model", "train"},
        "drill": {"data", "dist", "model", "train"},
        "launch": {"data", "dist"},
        "report": {"data", "evals"},
    },
    {"demo": {"data", "dist", "evals", "export", "accept", "report"}},
    {"cli": {"data", "dist", "train", "evals", "export", "accept", "bench", "drill", "launch", "report", "demo"}},
)
MAY_IMPORT = {folder: imports for floor in FLOORS for folder, imports in floor.items()}

# Where importing must stay cheap, or must work without torch: there it is imported inside functions at the most.
WITHOUT_TORCH = {*BASE, "data", "accept", "launch", "report", "cli"}
WITH_TORCH_ALL_THE_SAME = {"data/pack.py": "makes the tensors of a pack"}

# The name to import a distribution by, where it is another one.
IMPORTED_AS = {
    "flash-attn-4": "flash_attn",
    "nvidia-cudnn-frontend": "cudnn",
    "nvidia-ml-py": "pynvml",
    "ruamel.yaml": "ruamel",
}


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything imported anywhere in a module, inside functions and for types too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: write imports in full, from seatrial"
            for alias in node.names:
                yield node.lineno, f"{node.module}.{alias.name}"


def imports_of(path: Path) -> Iterator[tuple[int, str]]:
    return imports(ast.parse(path.read_text()))


def part_of(path: Path) -> str:
    """The folder or the base file that a module of the package belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def allowed(part: str) -> set[str]:
    if part in BASE:
        return set(BASE[: BASE.index(part)])
    return {*BASE, part, *MAY_IMPORT[part]}


def upward_imports(path: Path) -> list[str]:
    """What a module imports of ours and may not, one line each."""
    part = part_of(path)
    found = []
    for line, name in imports_of(path):
        package, _, rest = name.partition(".")
        imported = rest.partition(".")[0]
        if package == "seatrial" and imported != "__version__" and imported not in allowed(part):
            found.append(f"{path.relative_to(ROOT)}:{line}: {part} may not import {name}")
    return found


def test_imports_point_down() -> None:
    entry = {"__init__", "__main__"}
    wrong = [line for path in modules() if part_of(path) not in entry for line in upward_imports(path)]
    assert not wrong, "\n".join(wrong)


def test_every_part_has_a_floor() -> None:
    assert {part_of(path) for path in modules()} - {"__init__", "__main__"} == {*BASE, *MAY_IMPORT}


@pytest.mark.parametrize("number", range(len(FLOORS)))
def test_a_floor_names_lower_floors_only(number: int) -> None:
    below = {folder for floor in FLOORS[:number] for folder in floor}
    for folder, may_import in FLOORS[number].items():
        assert may_import <= below, f"{folder}: {may_import - below} is not below it"


def test_torch_stays_where_it_lives() -> None:
    for path in modules():
        where = path.relative_to(PACKAGE).as_posix()
        if part_of(path) in WITHOUT_TORCH and where not in WITH_TORCH_ALL_THE_SAME:
            body = ast.parse(path.read_text()).body
            at_once = [node for node in body if isinstance(node, ast.Import | ast.ImportFrom)]
            names = {name.partition(".")[0] for node in at_once for _, name in imports(node)}
            assert "torch" not in names, f"{where}: import torch inside the function that needs it"


SHIPPED = ("gpu", "nf4", "demo", "parquet")


def test_dependencies_are_declared_and_used() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = {
        _module(line) for line in (*project["dependencies"], *(line for name in SHIPPED for line in extras[name]))
    }
    used = {name.partition(".")[0] for path in modules() for _, name in imports_of(path)}
    used -= {*sys.stdlib_module_names, "seatrial"}
    assert used == declared, f"declared and not used: {declared - used}; used and not declared: {used - declared}"


def test_dependencies_are_pinned() -> None:
    pins = {_name(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [project["dependencies"], *project["optional-dependencies"].values()]
    missing = {_name(line) for lines in wanted for line in lines} - pins
    assert not missing, f"constraints.txt has no pin for {missing}"


def _name(requirement: str) -> str:
    """The distribution that a requirement names, spelt in one way."""
    found = re.match(r"[\w.-]+", requirement)
    return found[0].lower().replace("_", "-") if found else ""


def _module(requirement: str) -> str:
    name = _name(requirement)
    return IMPORTED_AS.get(name, name.replace("-", "_"))
