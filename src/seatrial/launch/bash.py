"""Pieces of bash that several targets write. Whatever comes from a user is quoted, and so is never run."""

import hashlib
import shlex
from collections.abc import Iterable, Sequence

from seatrial.launch.environment import Variable


def exports(variables: Iterable[Variable]) -> list[str]:
    """A line each (more where a value has more), with the reason beside it."""
    return [f"export {one.name}={shlex.quote(one.value)}  # {one.reason}" for one in variables]


FOLDER = ".seatrial"
"""In ``job.workdir``: the settings that travelled with a job, logs and summaries."""


def settings_path(text: str) -> str:
    """Where the settings of a job lie on its nodes. Other settings have another name, so that nothing changes under a
    job that starts again."""
    return f"{FOLDER}/settings-{hashlib.sha256(text.encode()).hexdigest()[:12]}.yaml"


def heredoc(file: str, text: str) -> str:
    """Lines that write ``text`` to a file as it is.

    Args:
        file: as bash reads it: quoted, or with variables in it.
    """
    whole = text if text.endswith("\n") else f"{text}\n"
    return f"cat >{file} <<'{(end := delimiter(text))}'\n{whole}{end}"


def delimiter(text: str) -> str:
    """A line that does not occur in ``text``, and is the same for the same text."""
    end, lines = "END_OF_SETTINGS", set(text.split("\n"))
    while end in lines:
        end = f"END_{hashlib.sha256(f'{end}{text}'.encode()).hexdigest()[:16]}"
    return end


def command(words: Sequence[str], *, indent: str = "    ") -> str:
    """One word a line, so that a reader finds each."""
    return f" \\\n{indent}".join(shlex.quote(word) for word in words)
