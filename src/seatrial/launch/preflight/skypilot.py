"""What SkyPilot says of a job before it is submitted: whether it is there, and may use what the job names."""

import re
from collections.abc import Iterator

from seatrial.launch.job import Job
from seatrial.launch.preflight.answer import last_line, plain
from seatrial.launch.preflight.finding import Finding, doubtful, failed, passed, skipped
from seatrial.shell import Output

VERSION = ("sky", "--version")
VOLUMES = ("sky", "volumes", "ls")
_NAMES = {"k8s": "kubernetes"}
ANSWER_SECONDS = 180.0
"""SkyPilot starts a server of its own before it answers for the first time: a minute on two busy cores."""


def check(job: Job) -> tuple[str, ...]:
    """Asks SkyPilot whether the credentials for the job's infrastructure work."""
    return ("sky", "check", _cloud(job))


def _cloud(job: Job) -> str:
    first = job.skypilot.infra.partition("/")[0].lower()
    return _NAMES.get(first, first)


def judge_version(answer: Output) -> Finding:
    if answer.ok:
        return passed("sky", answer.stdout.strip())
    return failed("sky", last_line(answer), "pip install 'skypilot[kubernetes]' beside seatrial, or use --dry-run")


def judge_check(job: Job, answer: Output) -> Finding:
    """The answer has a line such as ``  Kubernetes: enabled [compute]``, and below it each context's, or the reason."""
    what = f"sky check {_cloud(job)}"
    remedy = f"`{' '.join(check(job))} --verbose` says what is missing"
    text = plain(answer.stdout)
    line = re.search(rf"^  {re.escape(_cloud(job))}: (.*)\n", text, re.MULTILINE | re.IGNORECASE)
    if line is None:
        return failed(what, last_line(answer), "`sky check` lists what SkyPilot can use; set job.skypilot.infra")
    state, below = line[1], text[line.end() :]
    context = job.skypilot.infra.partition("/")[2]
    if context and _cloud(job) == "kubernetes":
        line = re.search(rf"{re.escape(context)}: (.*)", below)
        if line is None:
            remedy = "`kubectl config get-contexts` lists those there are, ~/.sky/config.yaml those that are allowed"
            return failed(what, f"knows no context {context}", remedy)
        state = line[1]
    if not state.startswith("enabled"):
        reason = re.search(r"Reason(?: \[\w+\])?: *(\S.*)", f"{state}\n{below}")
        return failed(what, reason[1].strip() if reason else state.strip(), remedy)
    if (note := re.search(r"Note: (.*?) *$", below, re.MULTILINE)) and job.gpus_per_node:
        return doubtful(what, f"{state.strip()}; {note[1]}", "label them, or GPUs are not found")
    return passed(what, state.strip())


def judge_volumes(job: Job, answer: Output) -> Iterator[Finding]:
    """The first column of the answer holds the names of volumes."""
    if not answer.ok:
        yield skipped("volumes", f"cannot be asked: {last_line(answer)}")
        return
    names = {line.split()[0] for line in plain(answer.stdout).splitlines() if line.strip()}
    for mount in job.mounts:
        if mount.kind == "scratch" or mount.source is None or "://" in mount.source:  # a bucket is no volume
            continue
        what = f"mount {mount.path}"
        if mount.source in names:
            yield passed(what, f"volume {mount.source} is there")
        else:
            remedy = "`sky volumes ls` lists them, `sky volumes apply` makes one; correct the mount's source"
            yield failed(what, f"no volume {mount.source}", remedy)
