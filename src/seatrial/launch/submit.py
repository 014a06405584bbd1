"""Sending a job off, and asking for it afterwards: the one place of ``seatrial launch`` that runs programs."""

import os
import shutil
import socket
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from seatrial.errors import UsageError
from seatrial.launch import control
from seatrial.launch.complaints import complaint
from seatrial.launch.job import Rendered
from seatrial.launch.kubernetes import render_kubernetes
from seatrial.launch.ledger import Launched, folder_for, write
from seatrial.launch.local import run_here
from seatrial.launch.plan import Plan
from seatrial.launch.preflight.place import place_of
from seatrial.shell import Output, run

ANSWER_SECONDS = 120.0
"""SkyPilot starts a server of its own before it answers for the first time; others take a second."""

POD_SECONDS = 300.0
"""What an image takes to be pulled, and a node without GPUs to be made."""


def write_files(rendered: Rendered, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in rendered.files:
        (folder / name).write_text(text)


def submit(target: str, plan: Plan, rendered: Rendered, state: Path, say: Callable[[str], None]) -> int:
    """Write the files, run the commands that send them, and note down what was launched.

    A torchrun job runs here and now, to its end; others go on by themselves.

    Returns:
        An exit code.

    Raises:
        UsageError: the target refused; says why, and what to type next.
    """
    folder = folder_for(state, target, plan.job.name)
    write_files(rendered, folder)
    if not rendered.submit:
        raise UsageError(
            f"{target} starts nodes of this machine alone: run {folder}/{rendered.files[0][0]} on each of them"
        )
    missing = [name for name in plan.job.secrets if not os.environ.get(name)] if target not in control.KINDS else []
    if missing:
        raise UsageError(f"job.secrets: {missing[0]} is not set here; export {missing[0]}=..., and submit again")

    def note(number: str) -> None:
        write(
            state,
            Launched(
                target=target,
                number=number,
                job=plan.job,
                folder=folder.resolve(),
                results=control.results(target, plan, number),
                time=time.time(),
            ),
        )

    if target == "torchrun":
        note(str(os.getpid()))
        say(f"{plan.job.nodes} nodes on this machine; what each says is in {folder}/node-K.log")
        return run_here(rendered, folder, _free_port())
    printed = ""
    for argv in rendered.submit:
        say(" ".join(argv))
        printed = _answer(argv, cwd=folder).stdout
    number = control.handle(target, plan.job.name, printed)
    note(number)
    say(f"submitted {plan.job.name} as {number}; `seatrial launch logs {plan.job.name} --follow` shows what it says")
    return 0


def status(launched: Launched) -> str:
    if launched.target == "torchrun":
        return f"{'running' if Path('/proc', launched.number).exists() else 'ended'} on this machine"
    return "\n".join(_answer(argv).stdout.strip() for argv in control.status(launched))


def follow(argv: Sequence[str]) -> int:
    """Run a program whose output, and input, are the user's.

    Raises:
        UsageError: there is no such program.
    """
    try:
        return subprocess.run(argv, check=False).returncode
    except FileNotFoundError as error:
        raise UsageError(complaint(Output(tuple(argv), None, "", f"{argv[0]}: no such program", 0.0))) from error
    except KeyboardInterrupt:  # of someone who has seen enough
        return 0


def execute(launched: Launched, words: Sequence[str]) -> int:
    return follow(control.shell(launched, words, pod=_first_pod(launched)))


def stop(launched: Launched) -> None:
    """Ask it to save and end. One of Slurm's that has not begun is taken out of the queue."""
    if launched.target == "slurm" and "JobState=PENDING" in status(launched):
        _answer(("scancel", launched.number))
        return
    _answer(control.stop(launched))


def fetch(launched: Launched, to: Path) -> None:
    """Copy results here: adapters, models, evaluations, reports and records, but no checkpoints.

    Raises:
        UsageError: they are nowhere yet, or cannot be reached.
    """
    argv = control.archive(launched)
    assert launched.results is not None
    here = place_of(launched.job, launched.target, launched.results).here
    if here is not None:
        if not here.is_dir():
            raise UsageError(f"{here}: not there yet; `seatrial launch status {launched.name}` says how far it is")
        shutil.copytree(here, to, dirs_exist_ok=True, ignore=shutil.ignore_patterns(*control.NOT_FETCHED))
        return
    with _pod(launched) as pod:
        unpack(control.shell(launched, argv, pod=pod), to)


def unpack(argv: Sequence[str], to: Path) -> None:
    """Run what writes a tar archive to its stdout, and unpack that as it comes.

    Raises:
        UsageError: it failed; says why, and what to type next.
    """
    with tempfile.TemporaryFile() as complaints:
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=complaints) as packing:
            assert packing.stdout is not None
            with suppress(tarfile.ReadError), tarfile.open(fileobj=packing.stdout, mode="r|") as archive:
                archive.extractall(to, filter="data")
        if packing.returncode != 0:
            complaints.seek(0)
            said = complaints.read().decode(errors="replace")
            raise UsageError(complaint(Output(tuple(argv), packing.returncode, "", said, 0.0)))


@contextmanager
def _pod(launched: Launched) -> Iterator[str]:
    """A pod that sees the job's mounts: its first, or where none runs any more one that only sleeps meanwhile."""
    if launched.target not in control.KINDS:
        yield ""
        return
    if names := _running_pods(launched):
        yield names[0]
        return
    reader = launched.model_copy(update={"target": "kubernetes", "job": control.reader(launched.job)})
    rendered = render_kubernetes(reader.job, None)
    with tempfile.TemporaryDirectory() as folder:
        write_files(rendered, Path(folder))
        for argv in rendered.submit:
            _answer(argv, cwd=Path(folder))
    try:
        deadline = time.monotonic() + POD_SECONDS
        while not (names := _running_pods(reader)):
            if time.monotonic() > deadline:
                raise UsageError(f"{reader.name}: no pod of it runs after {POD_SECONDS:g} s; {status(reader)}")
            time.sleep(1)
        yield names[0]
    finally:
        _answer(control.stop(reader))


def _running_pods(launched: Launched) -> list[str]:
    return _answer(control.pods(launched)).stdout.split()


def _first_pod(launched: Launched) -> str:
    if launched.target not in control.KINDS:
        return ""
    names = _running_pods(launched)
    if not names:
        raise UsageError(f"{launched.name}: none of its pods runs; `seatrial launch status {launched.name}` says why")
    return names[0]


def _answer(argv: Sequence[str], cwd: Path | None = None) -> Output:
    answer = run(argv, timeout_seconds=ANSWER_SECONDS, stdin="", cwd=cwd)  # kubectl would ask for a password
    if not answer.ok:
        raise UsageError(complaint(answer))
    return answer


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])
