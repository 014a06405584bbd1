"""Fixtures for every part."""

import os
from pathlib import Path

import pytest

# Tests run side by side: with a thread per core each, they would spend their time waiting for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.fixture
def real_data_dir() -> Path:
    """Folder with real rows, which are not part of the repository: ``SEATRIAL_REAL_DATA`` names it."""
    named = os.environ.get("SEATRIAL_REAL_DATA", "")
    folder = Path(named)
    if named and folder.is_dir():
        return folder
    why = f"SEATRIAL_REAL_DATA={named} is no folder" if named else "SEATRIAL_REAL_DATA names no folder of real rows"
    if os.environ.get("SEATRIAL_REQUIRE_REAL_DATA") == "1":
        pytest.fail(why)
    pytest.skip(why)
