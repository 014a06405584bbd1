"""The whole ladder on this machine's processor, and a measuring process that hangs, dies or leaves ranks behind."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

from seatrial.accept import catalogue, render, runner
from seatrial.accept.check import Request
from seatrial.accept.inventory import Inventory, take_inventory
from seatrial.accept.runner import Worker
from seatrial.acceptance import Acceptance
from seatrial.cli.main import app
from seatrial.errors import UsageError
from seatrial.records import CheckResult, Verdict, final_verdict

REQUEST = Request(check="host.cpu", seconds=0.1, directory=Path())


@pytest.fixture(scope="module")
def accepted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Acceptance]:
    out = tmp_path_factory.mktemp("acceptance")
    return out, runner.accept(out, budget_seconds=4, checks=["host", "storage", "collectives"])


def test_the_processors_ladder_is_measured_and_judged(accepted: tuple[Path, Acceptance]) -> None:
    """Rates may be INCONCLUSIVE on a busy machine; nothing is wrong, and nothing was left unmeasured in silence."""
    _, acceptance = accepted
    by_name = {result.check: result for result in acceptance.checks}
    assert list(by_name) == [c.name for c in catalogue.LADDER if c.group in ("host", "storage", "collectives")]
    for result in acceptance.checks:
        assert result.reason and result.question
        assert "could not be measured" not in result.reason, result
    for name in ("host.same_bits", "storage.space"):
        assert by_name[name].verdict is Verdict.PASS, by_name[name]
    for name in ("host.gemm", "host.memory_bandwidth", "collectives.loopback", "storage.disk"):
        assert by_name[name].measurements
        assert "wrong" not in by_name[name].reason and "did not read back" not in by_name[name].reason
        assert all(number.n >= 5 for number in by_name[name].measurements)


def test_the_reports_say_the_same(accepted: tuple[Path, Acceptance]) -> None:
    out, acceptance = accepted
    written = json.loads((out / "acceptance.json").read_text())
    assert written["schema_version"] == 3
    assert set(written) == {
        *("schema_version", "verdict", "checks", "provenance", "seconds", "host", "parts", "culprits", "nodes"),
        "profile",
    }
    assert Acceptance.model_validate(written) == acceptance
    assert written["verdict"] == final_verdict(result.verdict for result in acceptance.checks)
    measured = [json.loads(line)["check"] for line in (out / "facts.jsonl").read_text().splitlines()]
    assert {r.check for r in acceptance.checks if r.verdict is not Verdict.SKIPPED} <= set(measured)
    assert len(measured) == len(set(measured))
    suite = ElementTree.fromstring((out / "acceptance.xml").read_text())
    verdicts = [result.verdict for result in acceptance.checks]
    assert int(suite.attrib["tests"]) == len(verdicts)
    assert int(suite.attrib["failures"]) == verdicts.count(Verdict.FAIL)
    assert int(suite.attrib["errors"]) == verdicts.count(Verdict.INCONCLUSIVE)
    assert len(suite.findall("testcase/skipped")) == verdicts.count(Verdict.SKIPPED)
    page = (out / "acceptance.md").read_text()
    assert page.startswith(f"# Acceptance: {acceptance.verdict}")
    assert all(result.check in page for result in acceptance.checks)


def test_recorded_facts_give_the_same_verdict_again(accepted: tuple[Path, Acceptance]) -> None:
    out, acceptance = accepted
    results = {result.check: result for result in acceptance.checks}
    for line in (out / "facts.jsonl").read_text().splitlines():
        answer = json.loads(line)
        again = runner.judge_answer(catalogue.find(answer["check"]), answer, runner.BUILT_IN)
        assert (again.verdict, again.reason) == (results[answer["check"]].verdict, results[answer["check"]].reason)


@pytest.mark.skipif(take_inventory().gpus > 0, reason="this machine has NVIDIA GPUs")
def test_without_a_gpu_every_gpu_check_is_skipped_with_the_reason(tmp_path: Path) -> None:
    acceptance = runner.accept(tmp_path, budget_seconds=1, checks=["gpu", "fabric.peer", "collectives.nccl"])
    assert {result.verdict for result in acceptance.checks} == {Verdict.SKIPPED}
    assert {result.reason for result in acceptance.checks} == {"no NVIDIA GPU: nvidia-smi: no such program"}
    assert acceptance.verdict is Verdict.INCONCLUSIVE


@pytest.mark.skipif(take_inventory().gpus > 0, reason="this machine has NVIDIA GPUs")
def test_gpus_that_were_paid_for_and_are_not_there_are_not_skipped(tmp_path: Path) -> None:
    acceptance = runner.accept(tmp_path, budget_seconds=1, checks=["gpu.inventory", "gpu.same_bits"], expected_gpus=8)
    count, bits = acceptance.checks
    assert count.verdict is Verdict.FAIL and count.reason.startswith("8 GPU(s) expected, no driver answers")
    assert bits.verdict is Verdict.INCONCLUSIVE and "could not be measured: RuntimeError: CUDA shows" in bits.reason
    assert count.remedy and bits.remedy


def test_one_gpu_skips_what_takes_two() -> None:
    one = Inventory(("NVIDIA H200",), 1, False, True, "", None)
    reason = runner.why_skipped(catalogue.find("fabric.peer"), one, 1)
    assert reason == "1 NVIDIA GPU here: the question takes 2 or more"


def test_a_hanging_measurement_is_killed_with_its_children(tmp_path: Path) -> None:
    script = "sleep 300 & echo $! > child; wait"
    with Worker(tmp_path / "log", ["sh", "-c", f"cd {tmp_path}; {script}"]) as worker:
        answer = worker.ask(REQUEST, timeout_seconds=1)
    assert answer["error"] == "no answer within 1 s: killed"
    child = int((tmp_path / "child").read_text())
    assert _ends(child)
    judged = runner.judge_answer(catalogue.find("host.cpu"), answer, runner.BUILT_IN)
    assert judged.verdict is Verdict.INCONCLUSIVE


def _ends(pid: int) -> bool:
    for _ in range(100):
        stat = Path(f"/proc/{pid}/stat")
        if not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] == "Z":
            return True
        time.sleep(0.05)
    return False


def test_a_measurement_that_crashes_costs_one_answer(tmp_path: Path) -> None:
    crash = "import os, sys; sys.stdin.readline(); os.kill(os.getpid(), 11)"
    with Worker(tmp_path / "log", [sys.executable, "-c", crash]) as worker:
        for _ in range(2):
            answer = worker.ask(REQUEST, timeout_seconds=20)
            assert "ended with code -11" in answer["error"]


def test_one_worker_answers_question_after_question(tmp_path: Path) -> None:
    with Worker(tmp_path / "log") as worker:
        first = worker.ask(REQUEST, timeout_seconds=30)
        unknown = worker.ask(Request(check="host.clock", seconds=0.1, directory=tmp_path), timeout_seconds=30)
    assert first["facts"]["usable_cores"] == len(os.sched_getaffinity(0))
    assert len(unknown["facts"]["steps_ns"]) > 5


def test_an_output_directory_that_cannot_be_written_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"--out .* cannot be written"):
        runner.accept(tmp_path / "file" / "out", budget_seconds=1)


def test_a_disk_that_fills_up_is_a_usage_error(tmp_path: Path) -> None:
    """facts.jsonl is a device that is always full."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "facts.jsonl").symlink_to("/dev/full")
    with pytest.raises(UsageError, match="No space left on device"):
        list(runner.run_ladder(out, catalogue.choose(["host.cpu"]), 1, runner.Settings()))


def test_the_command_exits_by_verdict_and_writes_json(tmp_path: Path) -> None:
    target = tmp_path / "result.json"
    arguments = ["accept", "--budget", "1s", "--checks", "host.cpu,host.clock", "--out", str(tmp_path / "o")]
    done = CliRunner().invoke(app, [*arguments, "--json", str(target)])
    assert done.exit_code in (0, 3), done.output
    assert [check["check"] for check in json.loads(target.read_text())["checks"]] == ["host.cpu", "host.clock"]
    skipped = CliRunner().invoke(app, ["accept", "--checks", "collectives.nccl", "--out", str(tmp_path / "s")])
    assert skipped.exit_code == 3 or take_inventory().gpus > 1


def test_neighbours_skipped_for_one_reason_share_a_row() -> None:
    from rich.console import Console

    def result(check: str, verdict: Verdict, reason: str) -> CheckResult:
        return CheckResult(check=check, question="?", verdict=verdict, reason=reason, remedy="mend it")

    results = [
        result("a.one", Verdict.SKIPPED, "no GPU"),
        result("a.two", Verdict.SKIPPED, "no GPU"),
        result("b.one", Verdict.FAIL, "slow"),
        result("b.two", Verdict.FAIL, "slow"),
    ]
    console = Console(width=100)
    with console.capture() as captured:
        console.print(render.table(catalogue.LADDER[:5], results))
    text = captured.get()
    assert "a.one ... a.two" in text and "b.one " in text and "b.two " in text
    assert f"{catalogue.LADDER[4].name} " in text and "running" in text


def test_explain_shows_the_arithmetic_and_its_source() -> None:
    done = CliRunner().invoke(app, ["accept", "explain", "gpu.memory_bandwidth"])
    assert done.exit_code == 0
    assert "6144 bit x 6.402 Gbit/s per pin / 8 = 4917 GB/s" in done.stdout and "source" in done.stdout
    for check in catalogue.LADDER:
        assert check.question in render.explanation(check, runner.BUILT_IN)


def test_the_limits_pass_their_lint() -> None:
    done = CliRunner().invoke(app, ["accept", "limits", "lint"])
    assert done.exit_code == 0 and "can fail" in done.stdout


def test_the_runner_does_not_import_torch() -> None:
    """So that the command starts at once and a CUDA context never lives in the process that must survive."""
    code = "import sys, seatrial.accept.runner; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
