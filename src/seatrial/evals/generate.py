"""Asking a model: greedy answers from a local model in batches, or from a server that speaks OpenAI's protocol.

Shapes: B rows of a batch, T tokens of its longest prompt, N new tokens.
"""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed

import torch
from transformers import GenerationConfig, PreTrainedModel

from seatrial.data.conversation import Conversation, Json, ToolCall, template_messages, template_tools
from seatrial.data.parse import Fault, Malformed, parse
from seatrial.data.render import Ids, Renderer
from seatrial.errors import UsageError
from seatrial.evals.score import Prediction

_DEEPEST_ARGUMENT = 64


def predict_with_model(
    model: PreTrainedModel, renderer: Renderer, rows: Sequence[Conversation], *, batch_size: int, max_new_tokens: int
) -> Iterator[tuple[int, Prediction]]:
    """Greedy answers to everything before the last turn of each row, as (index, prediction), a batch at a time.

    Rows are batched by length, the longest first, so that little is padded and a lack of memory shows at once.

    Raises:
        UsageError: a prompt leaves no room for an answer within the model's context.
    """
    prompts = [renderer.prompt(row.messages[:-1], row.tools) for row in rows]
    context = model.config.max_position_embeddings
    for row, prompt in zip(rows, prompts, strict=True):
        if len(prompt) >= context:
            raise UsageError(f"row {row.id}: its prompt has {len(prompt)} tokens, but the model's context is {context}")
    by_length = sorted(range(len(rows)), key=lambda i: -len(prompts[i]))
    for at in range(0, len(rows), batch_size):
        batch = by_length[at : at + batch_size]
        answers = _generate(model, renderer, [prompts[i] for i in batch], max_new_tokens=max_new_tokens)
        yield from zip(batch, answers, strict=True)


def predict_with_endpoint(
    url: str, model_name: str, rows: Sequence[Conversation], *, concurrency: int, max_new_tokens: int
) -> Iterator[tuple[int, Prediction]]:
    """Answers of a server at ``url`` (``http://host:port/v1``) as (index, prediction), as they come in.

    The server's own parser decides what is a call, so what is scored is what an application would receive.
    ``OPENAI_API_KEY`` is sent when it is set.

    Raises:
        UsageError: the server cannot be reached, refuses a request or answers something else.
    """
    executor = ThreadPoolExecutor(concurrency)
    try:
        asked = {
            executor.submit(_ask, url, request_body(row, model_name, max_new_tokens)): i for i, row in enumerate(rows)
        }
        for future in as_completed(asked):
            yield asked[future], future.result()
    finally:
        executor.shutdown(cancel_futures=True)


def request_body(row: Conversation, model_name: str, max_new_tokens: int) -> dict[str, Json]:
    """A chat completion request for everything before the last turn of ``row``: greedy, with the row's tools."""
    messages = template_messages(row.messages[:-1])
    for message in messages:
        for call in message.get("tool_calls", []):
            call["function"]["arguments"] = json.dumps(call["function"]["arguments"], ensure_ascii=False)
    body: dict[str, Json] = {
        "model": model_name,
        "messages": messages,
        "temperature": 0,
        "max_tokens": max_new_tokens,
    }
    tools = template_tools(row.tools)
    return body if tools is None else {**body, "tools": tools}


def read_response(response: Json) -> Prediction:
    """The prediction in a chat completion; arguments that are not a JSON object make it malformed.

    Raises:
        LookupError, TypeError: not a chat completion.
    """
    choice = response["choices"][0]
    message = choice["message"]
    text, finished = message.get("content") or "", choice.get("finish_reason") != "length"
    calls: list[ToolCall] = []
    for call in message.get("tool_calls") or []:
        function = call["function"]
        try:
            arguments = json.loads(function["arguments"])
        except (ValueError, RecursionError):
            return Prediction(text or function["arguments"], (), str(Fault.NOT_JSON), finished)
        if not isinstance(arguments, dict):
            return Prediction(text or function["arguments"], (), str(Fault.ARGUMENTS_NOT_AN_OBJECT), finished)
        calls.append(ToolCall(function["name"], arguments))
    return _checked(text, tuple(calls), finished)


def _generate(
    model: PreTrainedModel, renderer: Renderer, prompts: Sequence[Ids], *, max_new_tokens: int
) -> list[Prediction]:
    longest = max(map(len, prompts))
    ids_BT = torch.full((len(prompts), longest), renderer.pad_id)
    mask_BT = torch.zeros_like(ids_BT)
    for row, prompt in enumerate(prompts):
        ids_BT[row, longest - len(prompt) :] = torch.from_numpy(prompt)
        mask_BT[row, longest - len(prompt) :] = 1
    greedy = GenerationConfig(
        do_sample=False,
        max_new_tokens=max_new_tokens,
        eos_token_id=list(renderer.stop_ids),
        pad_token_id=renderer.pad_id,
    )
    # What is unset here would be filled from the file a model ships with, such as a repetition penalty.
    shipped, model.generation_config = model.generation_config, GenerationConfig()
    try:
        with torch.inference_mode():
            all_ids_BTN = model.generate(  # type: ignore[operator]
                ids_BT.to(model.device), attention_mask=mask_BT.to(model.device), generation_config=greedy
            )
    finally:
        model.generation_config = shipped
    return [_prediction(renderer, new_N) for new_N in all_ids_BTN[:, longest:].tolist()]


def _prediction(renderer: Renderer, new_N: list[int]) -> Prediction:
    stops = [i for i, token in enumerate(new_N) if token in renderer.stop_ids]
    text = renderer.decode(new_N[: stops[0]] if stops else new_N)
    parsed = parse(text, renderer.parser)
    if isinstance(parsed, Malformed):
        return Prediction(text, (), str(parsed.reason), bool(stops))
    return _checked(text, parsed.calls, bool(stops))


def _checked(text: str, calls: tuple[ToolCall, ...], finished: bool) -> Prediction:
    """A babbling model may write brackets without end; deeper than anyone asks for, they would exhaust our stack."""
    level: list[Json] = [call.arguments for call in calls]
    for _ in range(_DEEPEST_ARGUMENT):
        level = [item for value in level for item in _items(value)]
    return Prediction(text, (), "nested too deep", finished) if level else Prediction(text, calls, "", finished)


def _items(value: Json) -> list[Json]:
    return list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else []


def _ask(url: str, body: dict[str, Json]) -> Prediction:
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get("OPENAI_API_KEY"):
        headers["Authorization"] = f"Bearer {key}"
    address = f"{url.rstrip('/')}/chat/completions"
    try:
        request = urllib.request.Request(address, json.dumps(body).encode(), headers)
        with urllib.request.urlopen(request, timeout=600) as response:
            return read_response(json.load(response))
    except urllib.error.HTTPError as error:
        said = error.read(300).decode(errors="replace")
        raise UsageError(f"{address}: the server refuses with {error.code}: {said}") from error
    except OSError as error:
        raise UsageError(f"{address}: cannot be reached ({error}); is the server up?") from error
    except (ValueError, LookupError, TypeError) as error:
        raise UsageError(f"{address}: not an OpenAI-compatible chat endpoint ({type(error).__name__})") from error
