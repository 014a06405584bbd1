"""Why a program would not answer: these programs say it last."""

import re

from seatrial.shell import Output

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


def plain(text: str) -> str:
    """Without colours."""
    return _COLOUR.sub("", text)


def last_line(answer: Output) -> str:
    """Of what it complained, or else said; without advice to read its help."""
    lines = [line.strip() for line in plain(answer.stderr or answer.stdout).splitlines()]
    lines = [line for line in lines if line and not line.startswith('Try "')]
    if not lines:
        return f"{answer.argv[0]} ended with {answer.returncode}"
    return lines[-1].removeprefix("error: ")
