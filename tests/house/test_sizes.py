"""Long files and long functions are noticed while they are still easy to cut."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILE_LINES = 400
FUNCTION_LINES = 100

# What may be longer, how much, and why.
LONGER: dict[str, tuple[int, str]] = {}


def sources() -> list[Path]:
    return sorted(path for folder in ("src", "tests", "bench", "recipes") for path in (ROOT / folder).rglob("*.py"))


def limit(name: str, otherwise: int) -> int:
    return LONGER[name][0] if name in LONGER else otherwise


def functions(path: Path) -> dict[str, int]:
    """Lines of each function of a file, with its decorators, by ``file function``."""
    name = path.relative_to(ROOT).as_posix()
    found = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {f"{name} {node.name}": (node.end_lineno or 0) - node.lineno + 1 for node in found}


def test_files() -> None:
    for path in sources():
        name = path.relative_to(ROOT).as_posix()
        lines = len(path.read_text().splitlines())
        most = limit(name, FILE_LINES)
        assert lines <= most, f"{name} has {lines} lines, more than {most}: cut it where two ideas meet"


def test_functions() -> None:
    for path in sources():
        for name, lines in functions(path).items():
            most = limit(name, FUNCTION_LINES)
            assert lines <= most, f"{name}() has {lines} lines, more than {most}: give a step of it a name"


def test_every_exception_is_needed() -> None:
    sizes = {path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in sources()}
    sizes |= {name: lines for path in sources() for name, lines in functions(path).items()}
    for name in LONGER:
        ordinary = FUNCTION_LINES if " " in name else FILE_LINES
        assert sizes.get(name, 0) > ordinary, f"{name} needs no exception any more"
