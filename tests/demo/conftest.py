"""One small model and data set for all tests of a folder."""

from pathlib import Path

import pytest

from tests.small import write_model, write_rows


@pytest.fixture
def harbour(tmp_path: Path) -> Path:
    """A folder with ``model`` and ``data`` in it."""
    write_model(tmp_path / "model")
    write_rows(tmp_path / "data")
    return tmp_path
