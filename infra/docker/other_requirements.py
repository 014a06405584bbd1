"""Print what the installed seatrial requires, one line each, but for the distributions that are named."""

import re
import sys
from importlib.metadata import requires


def other_requirements(requirements: list[str], named: set[str]) -> list[str]:
    """Those without an extra, whose name is none of ``named``."""
    plain = [line for line in requirements if "extra ==" not in line]
    return [line for line in plain if re.split(r"[^\w.-]", line, maxsplit=1)[0] not in named]


if __name__ == "__main__":
    sys.stdout.writelines(f"{line}\n" for line in other_requirements(requires("seatrial") or [], set(sys.argv[1:])))
