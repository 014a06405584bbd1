"""Answers: greedy whatever the batch and the model's shipped settings, and what a server sends back."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from seatrial.data.conversation import Message, ToolCall
from seatrial.data.render import load_renderer
from seatrial.errors import UsageError
from seatrial.evals.generate import predict_with_endpoint, predict_with_model, read_response, request_body
from seatrial.evals.score import Prediction
from tests.evals.conftest import ROWS, WEATHER, conversation


def reply(content: str | None = None, calls: list[tuple[str, str]] | None = None, finish: str = "stop") -> Any:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = [
            {"id": str(i), "type": "function", "function": {"name": name, "arguments": arguments}}
            for i, (name, arguments) in enumerate(calls)
        ]
    return {"choices": [{"message": message, "finish_reason": finish}]}


@contextmanager
def server(answer: Any, status: int = 200) -> Iterator[tuple[str, list[Any]]]:
    """An HTTP server that answers every request alike and remembers what it was asked."""
    asked: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append((self.path, json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            body = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=http.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}/v1", asked
    finally:
        http.shutdown()
        thread.join()
        http.server_close()


@pytest.fixture(scope="module")
def model(model_dir: Path) -> LlamaForCausalLM:
    model = LlamaForCausalLM.from_pretrained(model_dir, dtype=torch.float32)
    assert isinstance(model, LlamaForCausalLM)
    model.eval()
    return model


@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_batches_do_not_change_the_answers(model: LlamaForCausalLM, model_dir: Path, batch_size: int) -> None:
    found = dict(predict_with_model(model, load_renderer(model_dir), ROWS, batch_size=batch_size, max_new_tokens=120))
    assert sorted(found) == [0, 1, 2]
    for index, row in enumerate(ROWS):
        assert found[index].calls == row.messages[-1].tool_calls
        assert found[index].finished and not found[index].malformed
    assert found[2].text == ROWS[2].messages[-1].content


def test_generation_is_the_argmax_of_each_step(model: LlamaForCausalLM, model_dir: Path) -> None:
    # A prompt it was not taught, and a shipped repetition penalty that would bend a decoder which heeded it.
    renderer = load_renderer(model_dir)
    row = conversation("new", "Paris Paris Paris tool name name", Message("assistant", "-"), "")
    model.generation_config.repetition_penalty = 5.0
    [(_, answer)] = predict_with_model(model, renderer, [row], batch_size=8, max_new_tokens=40)
    assert model.generation_config.repetition_penalty == 5.0
    ids = renderer.prompt(row.messages[:-1], row.tools).tolist()
    new: list[int] = []
    with torch.inference_mode():
        while len(new) < 40:
            token = int(model(torch.tensor([ids + new])).logits[0, -1].argmax())
            if token in renderer.stop_ids:
                break
            new.append(token)
    assert answer.text == renderer.decode(new)


def test_an_answer_cut_off_by_the_limit_is_marked(model: LlamaForCausalLM, model_dir: Path) -> None:
    [(_, answer)] = predict_with_model(model, load_renderer(model_dir), ROWS[:1], batch_size=1, max_new_tokens=8)
    assert not answer.finished
    assert answer.malformed and not answer.calls


def test_a_prompt_beyond_the_context_is_refused_by_name(model: LlamaForCausalLM, model_dir: Path) -> None:
    row = conversation("endless", "word " * 600, Message("assistant", "-"), "")
    with pytest.raises(UsageError, match=r"row endless: its prompt has \d+ tokens, but the model's context is 512"):
        list(predict_with_model(model, load_renderer(model_dir), [row], batch_size=1, max_new_tokens=8))


def test_an_endpoint_gets_the_prompt_and_its_calls_are_read() -> None:
    answer = reply(calls=[("get_weather", '{"city": "Paris"}')])
    with server(answer) as (url, asked):
        found = dict(predict_with_endpoint(url, "name", ROWS, concurrency=2, max_new_tokens=50))
    assert found == {i: Prediction("", (ToolCall("get_weather", {"city": "Paris"}),)) for i in range(3)}
    assert {path for path, _ in asked} == {"/v1/chat/completions"}
    assert sorted((body for _, body in asked), key=str) == sorted(
        (request_body(row, "name", 50) for row in ROWS), key=str
    )


def test_a_request_holds_earlier_calls_as_text_and_not_the_gold() -> None:
    call = ToolCall("get_weather", {"city": "Paris"}, "call_1")
    turns = (
        Message("user", "weather?"),
        Message("assistant", tool_calls=(call,)),
        Message("tool", "rain", tool_call_id="call_1"),
        Message("assistant", "the gold"),
    )
    row = conversation("long", "", Message("assistant"), "")
    body = request_body(type(row)(row.id, row.source, turns, (WEATHER,)), "m", 9)
    assert body["temperature"] == 0 and body["max_tokens"] == 9
    assert [message["role"] for message in body["messages"]] == ["user", "assistant", "tool"]
    assert body["messages"][1]["tool_calls"][0]["function"]["arguments"] == '{"city": "Paris"}'
    assert body["tools"][0]["function"]["name"] == "get_weather"
    assert "tools" not in request_body(type(row)(row.id, row.source, turns), "m", 9)


@pytest.mark.parametrize(
    ("response", "prediction"),
    [
        (reply("hello"), Prediction("hello")),
        (reply("hel", finish="length"), Prediction("hel", finished=False)),
        (reply(calls=[("f", "{}"), ("g", '{"a": 1}')]), Prediction("", (ToolCall("f", {}), ToolCall("g", {"a": 1})))),
        (reply(calls=[("f", "{oops")]), Prediction("{oops", malformed="not JSON")),
        (reply(calls=[("f", "[1]")]), Prediction("[1]", malformed="arguments are not an object")),
        (
            reply("deep", calls=[("f", '{"a": ' + "[" * 99 + "]" * 99 + "}")]),
            Prediction("deep", malformed="nested too deep"),
        ),
        (reply("deep", calls=[("f", "[" * 10**5)]), Prediction("deep", malformed="not JSON")),
    ],
)
def test_responses(response: Any, prediction: Prediction) -> None:
    assert read_response(response) == prediction


def test_an_endpoint_that_fails_is_an_error_that_says_how() -> None:
    def ask(url: str) -> None:
        list(predict_with_endpoint(url, "name", ROWS, concurrency=2, max_new_tokens=5))

    with server({"error": "no such model"}, status=404) as (url, _), pytest.raises(UsageError, match=r"404.*no such"):
        ask(url)
    with server({"unexpected": 1}) as (url, _), pytest.raises(UsageError, match="not an OpenAI-compatible"):
        ask(url)
    with pytest.raises(UsageError, match="cannot be reached"):
        ask(url)
