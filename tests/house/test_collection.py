"""Every test is run: pytest passes over folders by their names, `dist` among them by default, and does not say so."""

from fnmatch import fnmatch
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def test_no_folder_with_tests_is_passed_over(pytestconfig: pytest.Config) -> None:
    patterns = pytestconfig.getini("norecursedirs")
    folders = {folder for file in TESTS.rglob("test_*.py") for folder in file.relative_to(TESTS).parent.parts}
    assert "dist" in folders
    assert not [folder for folder in folders if any(fnmatch(folder, pattern) for pattern in patterns)]
