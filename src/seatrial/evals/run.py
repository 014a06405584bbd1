"""Evaluating: a suite and a model in, judged rows and a result with its provenance out."""

import time
from collections.abc import Iterator
from pathlib import Path

import torch
from rich.console import Console
from rich.markup import escape
from rich.progress import track

from seatrial.data.conversation import Conversation
from seatrial.evals.generate import predict_with_endpoint, predict_with_model
from seatrial.evals.score import Prediction, aggregate, by_category, score_row
from seatrial.evals.suite import JudgedRow, Suite, SuiteResult
from seatrial.model.load import load_for_inference
from seatrial.provenance import provenance
from seatrial.records import JsonObject


def evaluate_model(
    path: Path,
    suite: Suite,
    *,
    device: torch.device,
    batch_size: int,
    max_new_tokens: int,
    console: Console | None = None,
) -> tuple[SuiteResult, list[JudgedRow]]:
    """Score the model of a run or model directory; progress is drawn on ``console`` if there is one.

    Raises:
        UsageError: no model there, or a prompt longer than its context.
    """
    model, renderer = load_for_inference(path, device=device)
    answers = predict_with_model(model, renderer, suite.rows, batch_size=batch_size, max_new_tokens=max_new_tokens)
    generation = {
        "decoding": "greedy",
        "batch_size": batch_size,
        "max_new_tokens": max_new_tokens,
        "device": str(device),
        "dtype": str(model.dtype).removeprefix("torch."),
    }
    return _judge(suite, answers, str(path), generation, console)


def evaluate_endpoint(
    url: str, model_name: str, suite: Suite, *, concurrency: int, max_new_tokens: int, console: Console | None = None
) -> tuple[SuiteResult, list[JudgedRow]]:
    """Score a model behind an OpenAI-compatible server.

    Raises:
        UsageError: no such server, or it refuses.
    """
    answers = predict_with_endpoint(url, model_name, suite.rows, concurrency=concurrency, max_new_tokens=max_new_tokens)
    generation = {"decoding": "temperature 0", "concurrency": concurrency, "max_new_tokens": max_new_tokens}
    return _judge(suite, answers, f"{model_name} at {url}", generation, console)


def _judge(
    suite: Suite,
    answers: Iterator[tuple[int, Prediction]],
    model: str,
    generation: JsonObject,
    console: Console | None,
) -> tuple[SuiteResult, list[JudgedRow]]:
    start = time.perf_counter()
    shown = track(
        answers, escape(suite.name), len(suite.rows), console=console, disable=console is None, transient=True
    )
    predictions = dict(shown)
    seconds = time.perf_counter() - start
    rows = [_judged(row, predictions[i]) for i, row in enumerate(suite.rows)]
    scores = [row.score for row in rows]
    result = SuiteResult(
        **aggregate(scores).model_dump(),
        suite=suite.name,
        suite_sha256=suite.sha256,
        model=model,
        generation=generation,
        seconds=seconds,
        rows_per_s=len(rows) / seconds,
        categories=by_category(scores),
        provenance=provenance(),
    )
    return result, rows


def _judged(row: Conversation, prediction: Prediction) -> JudgedRow:
    return JudgedRow(
        id=row.id,
        prompt=row.messages[:-1],
        tools=tuple(tool.name for tool in row.tools),
        gold=row.messages[-1],
        prediction=prediction,
        score=score_row(row, prediction),
    )
