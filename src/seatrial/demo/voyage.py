"""The whole story on this machine: accept, make data, train through a kill, evaluate before and after, hand over."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

import torch
from rich.console import Console

from seatrial.accept.runner import accept
from seatrial.data.conversation import encode
from seatrial.data.synthetic import Split, corpus
from seatrial.demo import plan
from seatrial.demo.survive import judge_survival, train_through_a_kill
from seatrial.errors import Preempted, UsageError
from seatrial.evals.run import evaluate_model
from seatrial.evals.suite import SuiteResult, read_result, read_suite, write_result
from seatrial.export.handover import export
from seatrial.provenance import provenance
from seatrial.records import JsonObject, write_json
from seatrial.report.collect import collect
from seatrial.report.html import render
from seatrial.rundir import RunDir

_MARK = "demo.json"


def sail(out: Path, *, fresh: bool, console: Console) -> JsonObject:
    """Run the demo in ``out`` and return what ``out/summary.json`` says. An interrupted demo goes on where it was.

    Raises:
        UsageError: ``out`` belongs to something else or holds a finished demo, or PEFT is not installed.
        Preempted: interrupted; the same command goes on.
    """
    began = time.monotonic()
    _claim(out, fresh=fresh)
    stages = Stages(console)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    processes = min(2, torch.cuda.device_count()) if device.type == "cuda" else 2
    settings = plan.train_settings(out)
    run = RunDir(settings.run.dir)
    try:
        with stages.stage("accept", "is this machine what it should be?"):
            acceptance = accept(out / "acceptance", budget_seconds=plan.ACCEPT_BUDGET_SECONDS)
            stages.say(f"verdict {acceptance.verdict}")

        with stages.stage("data", f"{plan.TRAIN_ROWS:,} rows to train on, four held-out suites"):
            _write_rows(out / "data" / "records.jsonl", Split.TRAIN, plan.TRAIN_ROWS)
            for split in plan.HELD_OUT:
                _write_rows(out / "suites" / f"{split}.jsonl", split, plan.held_out_rows(split))

        with stages.stage("before", "what the base can do untrained"):
            before = {split: _evaluate(Path("tiny"), split, out, "before", device) for split in plan.HELD_OUT}
            stages.say(_headline(before[plan.HEADLINE]))

        killed = "2 processes, one of them killed" if processes > 1 else "one process, killed once"
        with stages.stage("train", f"LoRA in {killed}"):
            for record in train_through_a_kill(settings, out / "train.log", processes=processes):
                stages.show(f"step {record['step']}, loss {record['loss']:.3f}, attempt {record['attempt']}")
            survival = judge_survival(run.read_metrics(), run.read_events(), settings.optimizer.packs_per_step)
            stages.say(
                f"killed at step {survival.step}, resumed from {survival.resumed_from}; {survival.steps_run_twice} "
                f"steps run twice, largest difference in loss {survival.max_loss_difference:g}"
            )

        with stages.stage("after", "what it can do now"):
            after = {split: _evaluate(run.path, split, out, "after", device) for split in plan.HELD_OUT}
            stages.say(_headline(after[plan.HEADLINE]))

        with stages.stage("export", "PEFT adapter and merged model, loaded again with the plain libraries"):
            shutil.rmtree(out / "export", ignore_errors=True)
            exported = export(run, out / "export", merged=True, device=device)
            differences = [exported.adapter_logit_difference or 0.0, exported.merged_logit_difference or 0.0]
            stages.say(f"largest difference in logits {max(differences):.2g}")
    except KeyboardInterrupt as error:
        raise Preempted(f"interrupted; the same command goes on in {out}") from error

    summary: JsonObject = {
        "accept": {"verdict": acceptance.verdict},
        "before": _scores(before[plan.HEADLINE]),
        "after": _scores(after[plan.HEADLINE]),
        "splits": {
            split.value: {"before": _scores(before[split]), "after": _scores(after[split])} for split in plan.HELD_OUT
        },
        "kill": vars(survival),
        "export": {"max_logit_difference": max(differences)},
        "seconds": {**stages.seconds, "total": time.monotonic() - began},
        "processes": processes,
        "device": device.type,
        "provenance": provenance(),
    }
    write_json(out / "summary.json", summary)
    (out / "report.html").write_text(render(collect(out), written=datetime.now(UTC)))
    console.print(f"[bold]{out / 'report.html'}[/bold]  {summary['seconds']['total']:.0f} s in all")
    return summary


class Stages:
    """Says what is going on, and how long it took."""

    def __init__(self, console: Console) -> None:
        self.seconds: dict[str, float] = {}
        self._console = console
        self._name = ""

    @contextmanager
    def stage(self, name: str, question: str) -> Iterator[None]:
        """One stage; its time is kept under ``name``."""
        start, self._name = time.monotonic(), name
        self._console.print(f"[bold cyan]{name:>8}[/bold cyan]  {question}")
        with self._console.status(f"{name} ...", refresh_per_second=2) as self._status:
            yield
        self.seconds[name] = time.monotonic() - start

    def show(self, text: str) -> None:
        """Now, in the line that moves."""
        self._status.update(f"{self._name}: {text}")

    def say(self, text: str) -> None:
        """For good."""
        self._console.print(f"{'':8}  {text}")


def _claim(out: Path, *, fresh: bool) -> None:
    """Take ``out`` for a demo."""
    if find_spec("peft") is None:
        raise UsageError("the demo checks its adapter with PEFT: pip install 'seatrial[demo]'")
    if out.is_file():
        raise UsageError(f"{out} is a file; choose another --out")
    ours = (out / _MARK).is_file()
    if out.is_dir() and any(out.iterdir()) and not ours:
        raise UsageError(f"{out} is not empty and holds no demo; choose another --out")
    if ours and fresh:
        shutil.rmtree(out)
    elif (out / "summary.json").is_file():
        raise UsageError(
            f"{out} holds a finished demo (see report.html); start over with --fresh or choose another --out"
        )
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / _MARK, {"seed": plan.SEED})


def _write_rows(file: Path, split: Split, rows: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    made = corpus(rows, seed=plan.SEED, split=split, mix=plan.MIX, tools=plan.TOOLS, masked=plan.MASKED_SHARE)
    file.write_bytes(b"".join(encode(row) for row in made))


def _evaluate(model: Path, split: Split, out: Path, when: str, device: torch.device) -> SuiteResult:
    """Score one suite, or read what an interrupted demo has already scored before training."""
    file = out / "evals" / when / f"{split}.json"
    if when == "before" and file.is_file():
        return read_result(file)[0]
    suite = read_suite(out / "suites" / f"{split}.jsonl")
    result, rows = evaluate_model(
        model, suite, device=device, batch_size=plan.EVAL_BATCH, max_new_tokens=plan.MAX_NEW_TOKENS
    )
    write_result(file, result, rows)
    return result


def _scores(result: SuiteResult) -> JsonObject:
    return {name: getattr(result, name).model_dump() for name in ("exact_call", "call_recall", "irrelevance")}


def _headline(result: SuiteResult) -> str:
    exact = result.exact_call
    return (
        f"unseen values: exact calls {exact.value:.0%} ({exact.low:.0%} to {exact.high:.0%}, n = {exact.n}), "
        f"call recall {result.call_recall.value:.0%}, irrelevance {result.irrelevance.value:.0%}"
    )
