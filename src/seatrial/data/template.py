"""Chat templates: those that seatrial ships, which one suits a tokenizer, and what a stock template's own format is.

A template is only half of a format. The other half is the tokens that end an answer and the parser that reads the
calls back; here they travel together, and are written beside an exported model.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path

import jinja2
from transformers import PreTrainedTokenizerFast

from seatrial.data.parse import PARSERS, Parsed, parse
from seatrial.errors import IntegrityError, UsageError
from seatrial.records import write_json

STOCK = "stock"
MANIFEST = "seatrial_template.json"


@dataclass(frozen=True)
class Template:
    """A chat template, the tokens that end an assistant's turn, and vLLM's name of the parser for its calls.

    ``parser`` is 'none' for a template that cannot write calls.
    """

    name: str
    source: str
    stops: tuple[str, ...]
    parser: str

    @cached_property
    def is_shipped(self) -> bool:
        """Ours, unchanged: known to write a turn in the same way whatever follows it."""
        return self.name in _SHIPPED and self == shipped_template(self.name)

    @property
    def vllm_arguments(self) -> tuple[str, ...]:
        """What ``vllm serve`` needs so that it serves what was trained; the template lies beside the model."""
        arguments = ["--chat-template", "chat_template.jinja"]
        if self.parser == "mistral":
            arguments += ["--tokenizer-mode", "hf"]  # Mistral's own tokenizer would bring its own template
        if self.parser != "none":
            arguments += ["--enable-auto-tool-choice", "--tool-call-parser", self.parser]
        return tuple(arguments)


_CHATML_STOP, _LLAMA_STOP, _MISTRAL_STOP = ("<|im_end|>",), ("<|eot_id|>",), ("</s>",)
_SHIPPED: dict[str, tuple[tuple[str, ...], str]] = {
    "tiny": (_CHATML_STOP, "hermes"),
    "hermes": (_CHATML_STOP, "hermes"),
    "llama3": (_LLAMA_STOP, "hermes"),
    "mistral-v3": (_MISTRAL_STOP, "mistral"),
    "mistral-v11": (_MISTRAL_STOP, "mistral"),
    "qwen2": (_CHATML_STOP, "hermes"),
    "qwen2.5": (_CHATML_STOP, "hermes"),
    "qwen3": (_CHATML_STOP, "hermes"),
    "qwen3-2507": (_CHATML_STOP, "hermes"),
}
SHIPPED = tuple(_SHIPPED)
"""Names of the templates that come with seatrial; each is described at the head of its file in assets/templates."""


@lru_cache
def shipped_template(name: str) -> Template:
    """A template of ours.

    Raises:
        UsageError: no template of that name.
    """
    if name not in _SHIPPED:
        raise UsageError(f"no chat template called '{name}'; known: {', '.join((STOCK, *SHIPPED))}")
    source = (files("seatrial") / "assets" / "templates" / f"{name}.jinja").read_text()
    return Template(name, source, *_SHIPPED[name])


def choose_template(tokenizer: PreTrainedTokenizerFast, folder: Path, name: str | None) -> Template:
    """The template called ``name``; with None, the one written beside the model, or ours for its family, or its own.

    Raises:
        UsageError: an unknown name; 'stock' without a template; a vocabulary without the template's stop token.
        IntegrityError: the template beside the model is not the one of its manifest.
    """
    chosen = read_written_template(folder) if name is None else None
    if chosen is None:
        name = name or suiting_template(tokenizer.get_vocab(), _carried_source(tokenizer)) or STOCK
        chosen = stock_template(tokenizer) if name == STOCK else shipped_template(name)
    for stop in chosen.stops:
        if stop not in tokenizer.get_vocab():
            raise UsageError(f"{folder}: template '{chosen.name}' ends turns with {stop}, unknown to its tokenizer")
    return chosen


def suiting_template(vocabulary: Mapping[str, int], stock: str) -> str | None:
    """Name of ours that ``stock`` is, or that suits its family, told by the control tokens; None for all others."""
    if ours := [name for name in SHIPPED if shipped_template(name).source == stock]:
        return ours[0]
    chatml = {"<|im_start|>", "<|im_end|>"} <= vocabulary.keys()
    if {"<|start_header_id|>", "<|eot_id|>"} <= vocabulary.keys() and not chatml:
        return "llama3"
    if "[TOOL_CALLS]" in vocabulary:
        return "mistral-v11" if "[ARGS]" in vocabulary else "mistral-v3"
    if chatml and "You are a function calling AI model" in stock:
        return "hermes"
    if chatml and vocabulary.get("<|endoftext|>") == _QWEN_END_OF_TEXT and "<function=" not in stock:
        if "<think>" in vocabulary:
            return "qwen3" if "<think>" in stock or not stock else "qwen3-2507"
        return "qwen2.5" if "created by Alibaba Cloud" in stock else "qwen2"
    return None


_QWEN_END_OF_TEXT = 151643
"""Its id in every tokenizer from Qwen1.5 to Qwen3. Qwen3-Coder and Qwen3.5, which have it too, write calls in XML."""


def stock_template(tokenizer: PreTrainedTokenizerFast) -> Template:
    """The template the tokenizer carries; its stop token and parser are found by rendering an answer and a call.

    Raises:
        UsageError: it carries none, or nothing ends its answers.
    """
    source = _carried_source(tokenizer)
    if not source:
        raise UsageError(f"the tokenizer carries no chat template; choose one of: {', '.join(SHIPPED)}")
    answer = _render_answer(tokenizer, source, {"role": "assistant", "content": _ANSWER})
    rest = answer.partition(_ANSWER)[2]
    ends = [(rest.find(token.content), token.content) for token in tokenizer.added_tokens_decoder.values()]
    ends = sorted((at, content) for at, content in ends if at >= 0)
    if not ends:
        raise UsageError("the tokenizer's own chat template writes no stop token after an answer; choose another")
    stop = ends[0][1]
    call = _render_answer(tokenizer, source, {"role": "assistant", "content": "", "tool_calls": [_CALL]})
    return Template(STOCK, source, (stop,), _parser_of(call.partition(stop)[0]))


def write_template(template: Template, folder: Path) -> None:
    """Put the template where every server looks for it, and its manifest beside it."""
    (folder / "chat_template.jinja").write_text(template.source)
    write_json(
        folder / MANIFEST,
        {
            "template": template.name,
            "sha256": _sha256(template.source),
            "stop_tokens": list(template.stops),
            "tool_call_parser": template.parser,
            "vllm_arguments": list(template.vllm_arguments),
        },
    )


def read_written_template(folder: Path) -> Template | None:
    """What :func:`write_template` wrote, or None where it wrote nothing.

    Raises:
        IntegrityError: the template was changed since, or the manifest names a parser that we do not have.
    """
    manifest_file = folder / MANIFEST
    if not manifest_file.is_file():
        return None
    source = (folder / "chat_template.jinja").read_text()
    manifest = json.loads(manifest_file.read_text())
    if manifest["sha256"] != _sha256(source):
        raise IntegrityError(f"{folder}/chat_template.jinja is not the one its manifest {MANIFEST} names; export again")
    if manifest["tool_call_parser"] not in PARSERS:
        raise IntegrityError(f"{manifest_file}: unknown parser {manifest['tool_call_parser']!r}")
    return Template(manifest["template"], source, tuple(manifest["stop_tokens"]), manifest["tool_call_parser"])


_ANSWER = "Xyzzy."
_CALL = {"id": "call00001", "type": "function", "function": {"name": "xyzzy", "arguments": {"plugh": 3}}}
_TOOL = {"name": "xyzzy", "description": "Xyzzy.", "parameters": {"type": "object", "properties": {}}}


def _carried_source(tokenizer: PreTrainedTokenizerFast) -> str:
    """The chat template that came with the tokenizer, the one for tools where there are several, "" where none."""
    carried = tokenizer.chat_template
    if isinstance(carried, dict):
        return str(carried.get("tool_use", carried.get("default", "")))
    return carried or ""


def _render_answer(tokenizer: PreTrainedTokenizerFast, source: str, answer: dict[str, object]) -> str:
    """The text of ``answer`` after a question and its prompt; "" when the template refuses it."""
    question = {"role": "user", "content": "Go."}

    def render(messages: list[dict[str, object]], *, prompt: bool) -> str:
        return str(
            tokenizer.apply_chat_template(
                messages,  # type: ignore[arg-type]
                tools=[{"type": "function", "function": _TOOL}],
                chat_template=source,
                tokenize=False,
                add_generation_prompt=prompt,
            )
        )

    try:
        return render([dict(question), answer], prompt=False).removeprefix(render([dict(question)], prompt=True))
    except (jinja2.TemplateError, TypeError):
        return ""


def _parser_of(call_text: str) -> str:
    """The parser that reads the probe's call; the most particular formats are tried first, 'none' when none does."""
    for name in ("hermes", "mistral", "xlam", "llama3_json", "pythonic"):
        parsed = parse(call_text, name)
        if isinstance(parsed, Parsed) and [(call.name, call.arguments) for call in parsed.calls] == [
            ("xyzzy", {"plugh": 3})
        ]:
            return name
    return "none"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
