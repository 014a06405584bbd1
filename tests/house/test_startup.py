"""``seatrial --help`` answers at once: nothing heavy is imported before a verb runs."""

import json
import os
import subprocess
import sys

import pytest

MOST_SECONDS = 0.3
HEAVY = ("torch", "transformers", "pandas", "numpy", "matplotlib", "datasets", "huggingface_hub", "jinja2")

# Runs the verb table as the console script does, then says what got imported.
PROBE = """
import json, sys
sys.argv = ["seatrial", *sys.argv[1:]]
from seatrial.cli.main import main
try:
    main()
except SystemExit as end:
    assert end.code in (0, None), end.code
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})), file=sys.stderr)
"""


def imported_by(*arguments: str) -> list[str]:
    """Top-level modules that a command line has imported by its end."""
    done = subprocess.run([sys.executable, "-c", PROBE, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    imported: list[str] = json.loads(done.stderr.splitlines()[-1])
    assert "typer" in imported, "the probe did not run the command line"
    return imported


# typer itself takes pydantic to look at the parameters of a verb.
@pytest.mark.parametrize(
    ("arguments", "heavy"),
    [(["--help"], (*HEAVY, "pydantic")), (["train", "--help"], HEAVY), (["data", "prepare", "--help"], HEAVY)],
)
def test_help_imports_nothing_heavy(arguments: list[str], heavy: tuple[str, ...]) -> None:
    too_much = set(heavy) & set(imported_by(*arguments))
    assert not too_much, f"seatrial {' '.join(arguments)} imports {too_much}; import them inside the verb's function"


def test_help_is_quick() -> None:
    """In processor seconds, the best of several runs: other tests share this machine and stretch every wall clock."""
    seconds = []
    for _ in range(5):
        before = os.times()
        subprocess.run([sys.executable, "-m", "seatrial", "--help"], capture_output=True, check=True)
        after = os.times()
        seconds.append(after.children_user + after.children_system - before.children_user - before.children_system)
        if seconds[-1] < MOST_SECONDS:
            return
    pytest.fail(
        f"seatrial --help took {min(seconds):.2f} s at best of {len(seconds)}, more than {MOST_SECONDS} s; "
        "see what is imported: python -X importtime -m seatrial --help"
    )
