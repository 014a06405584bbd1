"""What SkyPilot says of a job before it is submitted: whether it is there, and may use what the job names."""

import re
from collections.abc import Iterator

from seatrial.launch.job import Job
from seatrial.launch.preflight.finding import Finding, failed, passed, skipped
from seatrial.shell import Output

VERSION = ("sky", "--version")
VOLUMES = ("sky", "volumes", "ls")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_NAMES = {"k8s": "kubernetes", "kubernetes": "kubernetes"}


def check(job: Job) -> tuple[str, ...]:
    """Asks SkyPilot whether the credentials for the job's infrastructure work."""
    return ("sky", "check", _cloud(job))


def _cloud(job: Job) -> str:
    first = job.skypilot.infra.partition("/")[0].lower()
    return _NAMES.get(first, first)


def judge_version(answer: Output) -> Finding:
    if answer.ok:
        return passed("sky", answer.stdout.strip())
    return failed("sky", _last_line(answer), "pip install 'skypilot[kubernetes]' beside seatrial, or use --dry-run")


def judge_check(job: Job, answer: Output) -> Finding:
    """The answer has a line such as ``  Kubernetes: enabled [compute]``, and below a disabled one its reason."""
    what, cloud = f"sky check {_cloud(job)}", _cloud(job)
    text = _COLOUR.sub("", answer.stdout + answer.stderr)
    for line, after in zip(text.splitlines(), [*text.splitlines()[1:], ""], strict=True):
        name, colon, state = line.strip().partition(":")
        if colon and name.strip().lower() == cloud:
            if state.strip().startswith("enabled"):
                return passed(what, state.strip())
            reason = after.strip() if after.strip() else state.strip()
            return failed(what, reason, f"`{' '.join(check(job))} --verbose` says what is missing")
    return failed(what, _last_line(answer), "`sky check` lists what SkyPilot can use; set job.skypilot.infra")


def judge_volumes(job: Job, answer: Output) -> Iterator[Finding]:
    """The first column of the answer holds the names of volumes."""
    if not answer.ok:
        yield skipped("volumes", f"cannot be asked: {_last_line(answer)}")
        return
    names = {line.split()[0] for line in _COLOUR.sub("", answer.stdout).splitlines() if line.strip()}
    for mount in job.mounts:
        if mount.kind == "scratch" or mount.source is None:
            continue
        what = f"mount {mount.path}"
        if mount.source in names:
            yield passed(what, f"volume {mount.source} is there")
        else:
            remedy = "`sky volumes ls` lists them, `sky volumes apply` makes one; correct the mount's source"
            yield failed(what, f"no volume {mount.source}", remedy)


def _last_line(answer: Output) -> str:
    lines = [line.strip() for line in _COLOUR.sub("", answer.stderr or answer.stdout).splitlines() if line.strip()]
    return lines[-1] if lines else f"{answer.argv[0]} ended with {answer.returncode}"
