import json
from pathlib import Path

import pytest

from seatrial.data.contamination import load_benchmark, overlap
from seatrial.data.conversation import Conversation, Message, Tool, ToolCall, encode
from seatrial.errors import UsageError

QUESTION = "Plan a route from Cork to Brest that keeps ten miles off every cape and lighthouse on the way, please"
PARAMETERS = {"type": "object", "properties": {"start": {"type": "string", "description": "from"}}}
TOOL = Tool("plan_route", "plans", PARAMETERS)


def row(question: str, tool: str = "other", parameters: dict[str, object] | None = None) -> Conversation:
    calls = (ToolCall(tool, {}, "c"),)
    messages = (Message("user", question), Message("assistant", tool_calls=calls))
    return Conversation("i", "test", messages, (Tool(tool, "", parameters or {}),))


@pytest.fixture(params=["bfcl", "records", "openai"])
def benchmark_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The same question and tool in each form that a benchmark may come in."""
    function = {"name": "plan_route", "description": "plans", "parameters": PARAMETERS}
    message = {"role": "user", "content": QUESTION}
    match request.param:
        case "bfcl":
            bfcl = function | {"parameters": PARAMETERS | {"type": "dict"}}
            text = json.dumps({"id": "simple_0", "question": [[message]], "function": [bfcl]}).encode()
        case "records":
            messages = (Message("user", QUESTION), Message("assistant", "ok"))
            text = encode(Conversation("b", "bench", messages, (TOOL,)))
        case _:
            messages_json = [message, {"role": "assistant", "content": "ok"}]
            text = json.dumps({"messages": messages_json, "tools": [function]}).encode()
    file = tmp_path / "benchmark.jsonl"
    file.write_bytes(text)
    return file


def test_every_kind_of_overlap_is_found(benchmark_file: Path) -> None:
    benchmark = load_benchmark(benchmark_file)
    assert overlap(row(QUESTION.upper() + "!"), benchmark).startswith("same question")
    thirteen = "cork to brest that keeps ten miles off every cape and lighthouse on the"
    assert overlap(row(f"Hello there, {thirteen} moon"), benchmark).startswith("13 words in a row")
    assert overlap(
        row("a", "plan_route", {"type": "object", "properties": {"start": {"type": "string"}}}), benchmark
    ) == ("same tool: plan_route")


def test_what_is_new_is_clean(benchmark_file: Path) -> None:
    benchmark = load_benchmark(benchmark_file)
    assert overlap(row("When is high tide at Brest?"), benchmark) == ""
    assert overlap(row("a", "plan_route", {"properties": {"finish": {"type": "string"}}}), benchmark) == ""


def test_short_questions_that_nearly_match_are_found(tmp_path: Path) -> None:
    file = tmp_path / "b.jsonl"
    words = [f"word{number}" for number in range(12)]
    file.write_text(json.dumps({"question": " ".join(words), "function": []}))
    benchmark = load_benchmark(file)
    assert overlap(row(" ".join([*words, "more"])), benchmark).startswith("nearly the same question")
    assert overlap(row(" ".join([*words[:6], "x", "y", *words[8:]])), benchmark) == ""


def test_a_file_that_is_no_benchmark_is_refused_with_its_row(tmp_path: Path) -> None:
    file = tmp_path / "b.jsonl"
    file.write_text('{"question": "a", "function": []}\n{"text": "b"}\n')
    with pytest.raises(UsageError, match=r"b\.jsonl:2: not a row of a benchmark"):
        load_benchmark(file)
