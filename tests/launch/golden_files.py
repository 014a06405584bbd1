"""Rendered files as they were last agreed on. SEATRIAL_WRITE_GOLDEN=1 writes them anew: read the difference in git."""

import os
from pathlib import Path

from seatrial.launch.job import Rendered

FOLDER = Path(__file__).parent / "golden"


def compare(name: str, rendered: Rendered) -> None:
    """All files of what was rendered against ``golden/NAME`` with what their own names have beyond the first one's."""
    first = Path(rendered.files[0][0]).stem
    for file, text in rendered.files:
        golden = FOLDER / f"{name}{file.removeprefix(first)}"
        if os.environ.get("SEATRIAL_WRITE_GOLDEN") == "1":
            FOLDER.mkdir(exist_ok=True)
            golden.write_text(text)
        assert golden.is_file(), f"{golden.name} is missing: make it with SEATRIAL_WRITE_GOLDEN=1"
        assert text == golden.read_text(), f"{golden.name} is not what is rendered; see SEATRIAL_WRITE_GOLDEN"
