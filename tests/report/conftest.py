"""Run directories as the real writers leave them, with all that a page can show."""

import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import pytest

from seatrial.data.conversation import Conversation, Message, Tool, ToolCall
from seatrial.evals.score import Prediction, aggregate, by_category, score_row
from seatrial.evals.suite import JudgedRow, SuiteResult, write_result
from seatrial.records import CheckResult, Measurement, Verdict, append_jsonl, write_json
from seatrial.rundir import RunDir
from seatrial.settings import DataSettings, ModelSettings, RunSettings, TrainSettings
from seatrial.train.meter import StepRecord

STEPS, SAVED, KILLED = 30, 10, 14
HOSTILE = """<script>alert("x")</script> & 'quoted' </style><img src=http://evil.example/x.png>"""


def step_record(step: int, attempt: int, loss: float | None = None) -> StepRecord:
    return StepRecord(
        step=step,
        attempt=attempt,
        epoch=step / 10,
        loss=3.0 * math.exp(-step / 8) if loss is None else loss,
        learning_rate=2e-4 * (1 - step / STEPS),
        grad_norm=1.0 + 1.0 / step,
        trained_tokens=900,
        tokens=4000,
        packs=[2 * step, 2 * step + 1],
        seconds=0.5,
        tokens_per_s=8000.0 + step,
        padded_tokens_per_s=9000.0 + step,
        trained_tokens_per_s=1800.0,
        model_tflop_per_s_per_gpu=300.0,
        mfu=0.42,
        data_seconds=0.001,
        seconds_p50=0.5,
        seconds_p90=0.52,
        seconds_p99=0.6,
        memory_allocated_gib=20.0,
        memory_reserved_gib=60.0,
        memory_peak_gib=56.0,
        rank_skew=1.02,
        slowest_rank=1,
    )


def write_run(path: Path) -> RunDir:
    """Thirty steps on two processes; killed after step 14, resumed from the checkpoint of step 10."""
    run = RunDir(path)
    run.prepare()
    settings = TrainSettings(
        run=RunSettings(dir=path), model=ModelSettings(path="tiny"), data=DataSettings(train=Path("data/train"))
    )
    write_json(run.settings, settings.model_dump(mode="json"))
    write_json(run.provenance, {"seatrial": "0.1.0", "packages": {"torch": "2.13.0"}, "argv": ["train", HOSTILE]})
    run.event("start", attempt=1, world_size=2, device="cpu", pids=[11, 12])
    run.event("data", rows=500, left_out={"too long": 3}, packs_per_epoch=20)
    for step in range(1, KILLED + 1):
        append_jsonl(run.metrics, asdict(step_record(step, attempt=1)))
    run.event("save", step=SAVED, seconds_blocked=0.004, seconds=0.1, checkpoint="step-00000010")
    run.event("start", attempt=2, world_size=2, device="cpu", pids=[13, 14])
    run.event("resume", step=SAVED, attempt=2)
    for step in range(SAVED + 1, STEPS + 1):
        append_jsonl(run.metrics, asdict(step_record(step, attempt=2)))
    for step in (20, 25, 30):
        run.event("save", step=step, seconds_blocked=0.001 * step, seconds=0.1, checkpoint=f"step-{step:08d}")
    run.event("done", attempt=2)
    run.write_outcome("done", "all steps are done", 0)
    return run


def suite_rows(n: int = 8) -> list[Conversation]:
    tool = Tool("get_weather", parameters={"type": "object", "properties": {"city": {"type": "string"}}})
    calling = [
        Conversation(
            f"row-{i}",
            "test",
            (
                Message("user", f"weather in City {i}? {HOSTILE}"),
                Message("assistant", tool_calls=(ToolCall("get_weather", {"city": f"City {i} {HOSTILE}"}),)),
            ),
            (tool,),
            "single",
        )
        for i in range(n - 2)
    ]
    silent = [
        Conversation(
            f"row-{i}",
            "test",
            (Message("user", "sing"), Message("assistant", "None of my tools sings.")),
            (tool,),
            "irrelevant",
        )
        for i in range(n - 2, n)
    ]
    return calling + silent


def write_evaluation(file: Path, rows: list[Conversation], right: Iterable[int], sha256: str = "same") -> None:
    """A result in which the rows numbered in ``right`` got the gold answer, the others a broken call."""
    right = set(right)
    judged = []
    for number, row in enumerate(rows):
        gold = row.messages[-1]
        answer = Prediction(gold.content, gold.tool_calls) if number in right else Prediction(HOSTILE, (), "not JSON")
        names = tuple(tool.name for tool in row.tools)
        judged.append(JudgedRow(row.id, row.messages[:-1], names, gold, answer, score_row(row, answer)))
    scores = [row.score for row in judged]
    result = SuiteResult(
        **aggregate(scores).model_dump(),
        suite=file.stem.removeprefix("before.").removeprefix("after."),
        suite_sha256=sha256,
        model="run",
        generation={"decoding": "greedy"},
        seconds=2.0,
        rows_per_s=4.0,
        categories=by_category(scores),
        provenance={},
    )
    write_result(file, result, judged)


def write_acceptance(file: Path) -> None:
    bandwidth = Measurement(name="copy", value=12.5, unit="GB/s", n=20, spread=0.3, where="node 0")
    checks = (
        CheckResult(
            check="host.memory",
            question="Is the memory as fast as it should be?",
            verdict=Verdict.PASS,
            reason="12.5 GB/s",
            measurements=(bandwidth,),
        ),
        CheckResult(
            check="host.disk",
            question="Is there room?",
            verdict=Verdict.WARN,
            reason=f"1.5 GiB {HOSTILE}",
            remedy="free some",
        ),
        CheckResult(check="gpu.gemm", question="Is it fast?", verdict=Verdict.SKIPPED, reason="no NVIDIA GPU"),
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(
        file,
        {
            "schema_version": 1,
            "verdict": "WARN",
            "checks": [check.model_dump(mode="json") for check in checks],
            "provenance": {},
            "seconds": 41.0,
        },
    )


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return write_run(tmp_path / "my run")


@pytest.fixture
def demo(tmp_path: Path) -> Path:
    """The layout `seatrial demo` leaves: the run in ``run/``, all else beside it."""
    out = tmp_path / "demo"
    write_run(out / "run")
    write_acceptance(out / "acceptance" / "acceptance.json")
    rows = suite_rows()
    for suite, right in (("iid", range(8)), ("unseen_values", range(6))):
        write_evaluation(out / "evals" / "before" / f"{suite}.json", rows, [7])
        write_evaluation(out / "evals" / "after" / f"{suite}.json", rows, right)
    write_json(
        out / "summary.json",
        {"export": {"max_logit_difference": 2.5e-6}, "kill": {"step": KILLED}, "seconds": {"total": 200.4}},
    )
    return out
