"""Running a program: an argument list in, a frozen result out. No shell strings."""

import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Output:
    """``returncode`` is None when the program does not exist or ran past its time limit; ``stderr`` then says which."""

    argv: tuple[str, ...]
    returncode: int | None
    stdout: str
    stderr: str
    seconds: float

    @property
    def ok(self) -> bool:
        return self.returncode == 0


def run(
    argv: Sequence[str],
    *,
    timeout_seconds: float,
    env: Mapping[str, str] | None = None,
    stdin: str | None = None,
    cwd: Path | None = None,
) -> Output:
    """Run ``argv`` to its end. Never raises for what the program does: a check must be able to judge a failure."""
    start = time.monotonic()
    returncode: int | None = None
    try:
        done = subprocess.run(
            list(argv),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout_seconds,
            env=env,
            input=stdin,
            cwd=cwd,
        )
        returncode, stdout, stderr = done.returncode, done.stdout, done.stderr
    except FileNotFoundError:
        stdout, stderr = "", f"{argv[0]}: no such program"
    except subprocess.TimeoutExpired as error:
        stdout = error.stdout.decode(errors="replace") if isinstance(error.stdout, bytes) else ""
        stderr = f"{argv[0]}: no answer within {timeout_seconds:g} s"
    return Output(tuple(argv), returncode, stdout, stderr, time.monotonic() - start)
