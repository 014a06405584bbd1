"""Puts the questions of the ladder, one after another, to a process that can be killed, and writes what came back."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Self

from seatrial.accept import catalogue, render
from seatrial.accept.check import AnyCheck, Judgement, Request, judge_recorded
from seatrial.accept.history import Past, with_past
from seatrial.accept.inventory import Inventory, take_inventory
from seatrial.accept.limits import Limits
from seatrial.accept.nvml import DriverState
from seatrial.accept.parts import gpu_parts
from seatrial.accept.profiles import Profile, under
from seatrial.acceptance import Acceptance, NodeGrade, Part
from seatrial.errors import UsageError
from seatrial.hardware import node_name
from seatrial.provenance import provenance
from seatrial.records import CheckResult, JsonObject, Verdict, append_jsonl, final_verdict, read_jsonl, write_json

BUILT_IN = Limits()


@dataclass(frozen=True)
class Settings:
    """What the user says beyond checks and budget: GPUs that were paid for, limits of a contract, mounts that matter,
    what earlier acceptances measured, and whose demands grade the results."""

    expected_gpus: int | None = None
    limits: Limits = BUILT_IN
    mounts: tuple[Path, ...] = ()
    past: Past = field(default_factory=dict)
    profile: Profile | None = None

    def graded(self, result: CheckResult) -> CheckResult:
        return under(self.profile, result) if self.profile else result


def accept(
    out: Path,
    *,
    budget_seconds: float = 180.0,
    checks: Sequence[str] = (),
    expected_gpus: int | None = None,
    limits: Limits = BUILT_IN,
) -> Acceptance:
    """Test this machine and leave ``acceptance.json`` and ``facts.jsonl`` in ``out``.

    Raises:
        UsageError: an unknown check, or ``out`` cannot be written.
    """
    start = time.monotonic()
    settings = Settings(expected_gpus=expected_gpus, limits=limits)
    results = tuple(run_ladder(out, catalogue.choose(checks), budget_seconds, settings))
    return conclude(out, results, time.monotonic() - start)


def run_ladder(
    out: Path,
    checks: Sequence[AnyCheck],
    budget_seconds: float,
    settings: Settings,
) -> Iterator[CheckResult]:
    """Results as they come, in the order of ``checks``. Raw facts are appended to ``out/facts.jsonl``.

    Raises:
        UsageError: ``out`` cannot be written.
    """
    with _writing(out):
        out.mkdir(parents=True, exist_ok=True)
        (out / "facts.jsonl").write_text("")
    inventory = take_inventory()
    gpus = max(inventory.gpus, settings.expected_gpus or 0)
    seconds = catalogue.sampling_seconds([c for c in checks if c.needs_gpus <= gpus], budget_seconds)
    with Worker(out / "worker.log") as worker:
        for check in checks:
            if check.needs_gpus > gpus:
                skipped = Judgement(Verdict.SKIPPED, why_skipped(check, inventory, gpus))
                yield settings.graded(result_of(check, skipped, 0.0))
                continue
            request = Request(
                check=check.name,
                seconds=seconds[check.name],
                directory=out.resolve(),
                expected_gpus=gpus,
                mounts=settings.mounts,
                patience_seconds=check.startup_seconds + 4 * seconds[check.name],
            )
            start = time.monotonic()
            answer = worker.ask(request, request.patience_seconds)
            with _writing(out):
                append_jsonl(out / "facts.jsonl", answer)
            judged = result_of(check, judge_answer(check, answer, settings.limits), time.monotonic() - start)
            yield settings.graded(with_past(judged, parts_in(out), settings.past) if settings.past else judged)


def why_skipped(check: AnyCheck, inventory: Inventory, gpus: int) -> str:
    if gpus == 0:
        hidden = inventory.visible == 0 and inventory.listed
        return f"no NVIDIA GPU: {'CUDA_VISIBLE_DEVICES names none' if hidden else inventory.driver_answer}"
    return f"{gpus} NVIDIA GPU here: the question takes {check.needs_gpus} or more"


def judge_answer(check: AnyCheck, answer: JsonObject, limits: Limits) -> Judgement:
    """A measurement that failed, crashed or hung is INCONCLUSIVE with what stopped it."""
    if "facts" not in answer:
        return Judgement(Verdict.INCONCLUSIVE, f"could not be measured: {answer.get('error', 'no answer')}")
    return judge_recorded(check, answer["facts"], limits)


def parts_in(out: Path) -> tuple[Part, ...]:
    """The machine, and its GPUs where the facts so far tell of them."""
    serial = Path("/sys/class/dmi/id/product_serial")
    readable = serial.exists() and os.access(serial, os.R_OK)
    node = Part(where=node_name(), name="node", serial=serial.read_text().strip() if readable else "")
    for answer in read_jsonl(out / "facts.jsonl"):
        if answer["check"] == "gpu.inventory" and answer.get("facts", {}).get("state"):
            return (node, *gpu_parts(DriverState.model_validate(answer["facts"]["state"])))
    return (node,)


def conclude(
    out: Path,
    results: Sequence[CheckResult],
    seconds: float,
    parts: Sequence[Part] | None = None,
    culprits: Sequence[JsonObject] = (),
    nodes: Sequence[NodeGrade] | None = None,
    profile: Profile | None = None,
) -> Acceptance:
    """Grade the results and write the reports: ``acceptance.json``, ``.md``, ``.html`` and ``.xml`` (JUnit)."""
    from seatrial.accept import page

    verdict = final_verdict(result.verdict for result in results)
    acceptance = Acceptance(
        verdict=verdict,
        checks=tuple(results),
        provenance=provenance(),
        seconds=seconds,
        host=node_name(),
        parts=tuple(parts_in(out) if parts is None else parts),
        culprits=tuple(culprits),
        profile=profile.name if profile else "",
        nodes=tuple([grade_of(node_name(), verdict, results)] if nodes is None else nodes),
    )
    with _writing(out):
        write_json(out / "acceptance.json", acceptance.model_dump(mode="json"))
        (out / "acceptance.md").write_text(render.markdown(acceptance))
        (out / "acceptance.xml").write_text(render.junit(acceptance))
        (out / "acceptance.html").write_text(page.html(acceptance, list(read_jsonl(out / "facts.jsonl"))))
    return acceptance


def grade_of(host: str, verdict: Verdict, results: Sequence[CheckResult]) -> NodeGrade:
    """With the first of the checks that decided."""
    found = (f"{r.check}: {r.reason}" for r in results if r.verdict is verdict and verdict is not Verdict.PASS)
    return NodeGrade(host=host, verdict=verdict, reason=next(found, ""))


@contextlib.contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(f"--out {out}: cannot be written: {error}; choose another directory") from error


def result_of(check: AnyCheck, judgement: Judgement, seconds: float) -> CheckResult:
    needs_remedy = judgement.verdict in (Verdict.WARN, Verdict.FAIL, Verdict.INCONCLUSIVE)
    return CheckResult(
        check=check.name,
        question=check.question,
        verdict=judgement.verdict,
        reason=judgement.reason,
        measurements=judgement.measurements,
        remedy=check.remedy if needs_remedy else "",
        seconds=seconds,
    )


class Worker:
    """A measuring process in a session of its own: killed with all its ranks when it hangs, started anew when asked."""

    def __init__(self, log: Path, argv: Sequence[str] = (sys.executable, "-m", "seatrial.accept.worker")) -> None:
        self._log = log
        self._argv = argv
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._kill()

    def ask(self, request: Request, timeout_seconds: float) -> JsonObject:
        """The worker's answer, or one with ``error`` when it died or stayed silent."""
        process = self._start()
        requests, answers = _pipes(process)
        try:
            requests.write(request.model_dump_json() + "\n")
            requests.flush()
        except BrokenPipeError:
            return {"check": request.check, "error": self._death()}
        ready, _, _ = select.select([answers], [], [], timeout_seconds)
        if not ready:
            self._kill()
            return {"check": request.check, "error": f"no answer within {timeout_seconds:.0f} s: killed"}
        line = answers.readline()
        if not line.endswith("\n"):
            return {"check": request.check, "error": self._death()}
        answer: JsonObject = json.loads(line)
        return answer

    def _start(self) -> subprocess.Popen[str]:
        if self._process is None:
            with self._log.open("a") as log:
                self._process = subprocess.Popen(
                    self._argv,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    start_new_session=True,
                )
        return self._process

    def _death(self) -> str:
        """What ended the worker; its last words are in the log."""
        assert self._process is not None
        self._kill()
        return f"the measuring process ended with code {self._process_code}; see {self._log}"

    def _kill(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(ProcessLookupError):  # it may have ended, with all of its ranks
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process_code = self._process.wait()
        for pipe in _pipes(self._process):
            pipe.close()
        self._process = None


def _pipes(process: subprocess.Popen[str]) -> tuple[IO[str], IO[str]]:
    assert process.stdin is not None and process.stdout is not None
    return process.stdin, process.stdout
