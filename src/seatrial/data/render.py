"""Rendering: a conversation as tokens, and which of them are trained on, through a chat template.

What is trained must be what is served. The tokens of a conversation come from one tokenisation of the template's
whole text. An assistant turn begins where its prompt ends and ends with its stop token. A row is refused unless the
whole begins with each prompt, in text and in tokens, for a prompt is what a server feeds to the model; and unless each
turn, read by the parser that will serve it, gives back the text and the calls of its message.

Borders are carried from text to tokens without character offsets, which byte-level tokenizers report loosely: added
tokens such as ``<|im_end|>`` split the text before anything else happens, so the n-th of them in the text is the n-th
of them among the tokens, and only the few characters between the last one and the border are tokenised again.
"""

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from pathlib import Path

import jinja2
import numpy as np
import numpy.typing as npt
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from seatrial.data.conversation import (
    Conversation,
    Json,
    Message,
    Rejection,
    Tool,
    template_messages,
    template_tools,
)
from seatrial.data.parse import Malformed, parse, same_text
from seatrial.data.template import SHIPPED, STOCK, Template, choose_template, shipped_template
from seatrial.errors import UsageError

TINY = Path(__file__).resolve().parents[1] / "assets" / "tiny"
"""Directory of the tiny model that comes with seatrial."""

Ids = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]

_TEMPLATE_ERRORS = (jinja2.TemplateError, TypeError, ValueError, LookupError)
"""What a chat template, which is a program of its author's, does with a conversation that it does not foresee."""


class TrainOn(StrEnum):
    """Which tokens are targets: of all assistant turns, of the last one, or all text (pre-training documents)."""

    ALL = "all"
    LAST = "last"
    TEXT = "text"


@dataclass(frozen=True, eq=False)
class Rendered:
    """One conversation of T tokens.

    ``trained[t]`` says that ``ids[t]``, predicted from the tokens before it, carries loss.
    """

    ids: Ids
    trained: Mask

    def cut_to(self, length: int) -> "Rendered | None":
        """The conversation up to the last answer that ends within ``length`` tokens; None when no answer does.

        The cut is right after a trained answer's stop token, never within an answer.
        """
        ends = np.flatnonzero(self.trained[:-1] & ~self.trained[1:]) + 1
        if self.trained[-1:].any():
            ends = np.append(ends, len(self.trained))
        within = ends[ends <= length]
        return Rendered(self.ids[: within[-1]], self.trained[: within[-1]]) if within.size else None


@dataclass(frozen=True)
class Span:
    """Where an assistant turn stands in the rendered text: ``start`` ends its prompt, ``end`` its stop token."""

    start: int
    end: int


@dataclass(frozen=True, eq=False)
class Renderer:
    """A tokenizer and the chat template it writes conversations with."""

    tokenizer: PreTrainedTokenizerFast
    template: Template

    def __reduce__(self) -> tuple[object, ...]:
        return Renderer, (self.tokenizer, self.template)  # what is cached stays behind

    @property
    def parser(self) -> str:
        """Name of the parser that reads this template's calls."""
        return self.template.parser

    def render(self, conversation: Conversation, train_on: TrainOn = TrainOn.ALL) -> Rendered | Rejection:
        """Tokens of the whole conversation and the mask of its targets, or why it cannot be rendered faithfully."""
        messages, tools = template_messages(conversation.messages), template_tools(conversation.tools)
        if found := self._control_tokens.search(json.dumps([messages, tools], ensure_ascii=False)):
            return Rejection("control token in text", found.group())
        try:
            text = self._text(messages, tools, prompt=False)
            ids = self._encode(text)
            spans = (
                [] if train_on is TrainOn.TEXT else self._spans(conversation.messages, messages, tools, text, train_on)
            )
        except _TEMPLATE_ERRORS as error:
            return Rejection("refused by the template or the tokenizer", f"{type(error).__name__}: {error}")
        if isinstance(spans, Rejection):
            return spans
        trained = np.full(len(ids), train_on is TrainOn.TEXT)
        trained[:1] = False
        borders = _Borders(self, text, ids)
        for span in spans:
            start, end = borders.token(span.start), borders.token(span.end)
            if start is None or end is None:
                place = text[max(0, span.start - 20) : span.start + 20]
                return Rejection("prompt tokenised differently", f"around {place!r}")
            trained[start:end] = True
        return Rendered(ids, trained)

    def prompt(self, messages: tuple[Message, ...], tools: tuple[Tool, ...] = ()) -> Ids:
        """What a server feeds to the model so that it answers ``messages``.

        Raises:
            UsageError: the chat template refuses the messages.
        """
        try:
            return self._encode(self._text(template_messages(messages), template_tools(tools), prompt=True))
        except _TEMPLATE_ERRORS as error:
            raise UsageError(f"the chat template '{self.template.name}' refuses these messages: {error}") from error

    @cached_property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids of the tokens that end an assistant turn."""
        vocabulary = self.tokenizer.get_vocab()
        return tuple(vocabulary[stop] for stop in self.template.stops)

    @property
    def pad_id(self) -> int:
        """The tokenizer's padding token, or else a stop token; padding is never trained on or attended to."""
        pad = self.tokenizer.pad_token_id
        return self.stop_ids[0] if pad is None else int(pad)

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """Text of ``ids``, added tokens included."""
        return str(self.tokenizer.decode(np.asarray(ids).tolist(), skip_special_tokens=False))

    def _text(self, messages: list[dict[str, Json]], tools: list[dict[str, Json]] | None, *, prompt: bool) -> str:
        text = self.tokenizer.apply_chat_template(
            messages,
            tools=list(tools) if tools else None,
            chat_template=self.template.source,
            tokenize=False,
            add_generation_prompt=prompt,
        )
        return str(text)

    def _encode(self, text: str) -> Ids:
        # The template has written the beginning-of-sequence token already; the tokenizer must not add a second.
        encoded = self.tokenizer(text, add_special_tokens=False, return_attention_mask=False, verbose=False)
        return np.asarray(encoded["input_ids"], dtype=np.int32)

    def _spans(
        self,
        originals: tuple[Message, ...],
        messages: list[dict[str, Json]],
        tools: list[dict[str, Json]] | None,
        text: str,
        train_on: TrainOn,
    ) -> list[Span] | Rejection:
        """Spans of the assistant turns that carry loss."""
        turns = [i for i, message in enumerate(originals) if message.role == "assistant"]
        if train_on is TrainOn.LAST:
            turns = turns[-1:]
        spans = []
        for turn in turns:
            if originals[turn].weight == 0:
                continue
            if originals[turn].weight != 1:
                return Rejection("weight is neither 0 nor 1", f"message {turn}: {originals[turn].weight}")
            if turn == 0:
                return Rejection("assistant speaks first", "no prompt leads to it; give the message weight 0")
            prompt = self._text(messages[:turn], tools, prompt=True)
            if not text.startswith(prompt) or self._rewritten(messages, turn, tools, text):
                return Rejection("template rewrites earlier turns", f"message {turn}")
            # No message holds a stop token (render has looked), so the next one is the template's, after this turn.
            stop = self._stops.search(text, len(prompt))
            if stop is None:
                return Rejection("no stop token after the turn", f"message {turn}")
            if fault := self._misread(text[len(prompt) : stop.start()], originals[turn]):
                return Rejection("turn does not parse back", f"message {turn}: {fault}")
            spans.append(Span(len(prompt), stop.end()))
        return spans

    def _rewritten(
        self, messages: list[dict[str, Json]], turn: int, tools: list[dict[str, Json]] | None, text: str
    ) -> bool:
        """Whether the template would write ``turn`` otherwise if nothing followed it, as when it was served."""
        if self.template.is_shipped or turn + 1 == len(messages):
            return False
        return not text.startswith(self._text(messages[: turn + 1], tools, prompt=False))

    def _misread(self, written: str, message: Message) -> str:
        """How the server would read ``written`` otherwise than ``message``; "" when it would not."""
        if not written.strip():
            return "it is empty"
        parsed = parse(written, self.parser)
        if isinstance(parsed, Malformed):
            return f"{parsed.reason}: {parsed.detail}"
        if not same_text(parsed.content, message.content):
            return f"its text becomes {parsed.content[:100]!r}"
        if [(call.name, call.arguments) for call in parsed.calls] != [
            (call.name, call.arguments) for call in message.tool_calls
        ]:
            return f"its {len(message.tool_calls)} calls become {parsed.calls!r:.200}"
        return ""

    @cached_property
    def _control_tokens(self) -> re.Pattern[str]:
        """What would end a turn or the document in its middle, and what a server would take for the template's."""
        special = [token.content for token in self.tokenizer.added_tokens_decoder.values() if token.special]
        return _any_of([*special, *self.template.stops])

    @cached_property
    def _stops(self) -> re.Pattern[str]:
        return _any_of(self.template.stops)

    @cached_property
    def _added(self) -> re.Pattern[str]:
        return _any_of([token.content for token in self.tokenizer.added_tokens_decoder.values()])

    @cached_property
    def _is_added(self) -> Mask:
        """By token id, whether it is an added token."""
        is_added = np.zeros(max(self.tokenizer.get_vocab().values()) + 1, dtype=np.bool_)
        is_added[list(self.tokenizer.added_tokens_decoder)] = True
        return is_added

    @cached_property
    def _encode_tail(self) -> Callable[[str], Ids]:
        """The same few characters end every prompt, so they are tokenised once."""
        return lru_cache(maxsize=1024)(self._encode)


class _Borders:
    """Carries positions in a text to positions among its tokens."""

    def __init__(self, renderer: Renderer, text: str, ids: Ids) -> None:
        self._encode_tail, self._text, self._ids = renderer._encode_tail, text, ids
        self._characters = [match.start() for match in renderer._added.finditer(text)]
        self._tokens = np.flatnonzero(renderer._is_added[ids]).tolist()

    def token(self, character: int) -> int | None:
        """The index such that the tokens before it are exactly those of ``text[:character]``; None if there is none."""
        if len(self._characters) != len(self._tokens):
            return None
        before = bisect_left(self._characters, character)
        start_character = self._characters[before - 1] if before else 0
        start_token = self._tokens[before - 1] if before else 0
        tail = self._encode_tail(self._text[start_character:character])
        end_token: int = start_token + len(tail)
        return end_token if np.array_equal(self._ids[start_token:end_token], tail) else None


def load_renderer(model_dir: Path, template: str | None = None) -> Renderer:
    """The tokenizer in ``model_dir`` with the chat template called ``template``.

    None stands for the template written beside the model at export, or ours for its family, or the tokenizer's own;
    'stock' for the tokenizer's own.

    Raises:
        UsageError: no fast tokenizer there, an unknown template, or one that does not suit the tokenizer.
        IntegrityError: the template beside the model is not the one of its manifest.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(model_dir)
    except (OSError, ValueError) as error:
        why = " ".join(str(error).split())
        raise UsageError(f"{model_dir}: no tokenizer can be loaded from it: {why}") from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise UsageError(f"{model_dir}: {type(tokenizer).__name__} is not a fast tokenizer (tokenizer.json)")
    return Renderer(tokenizer, choose_template(tokenizer, model_dir, template))


def named_renderer(name: str, model_dir: Path | None = None) -> Renderer:
    """The renderer a person means by ``name``: a template's name or a model directory.

    A template that is named without a model is given the vocabulary of the tiny model that comes with seatrial, and
    the control tokens the template writes: enough to prove the template, not for the lengths of another tokenizer.

    Raises:
        UsageError, IntegrityError: as :func:`load_renderer`.
    """
    if model_dir is not None:
        return load_renderer(model_dir, name)
    if name not in SHIPPED:
        if name == STOCK:
            raise UsageError("--template stock: is the template of a model; say which with --model DIR")
        if not Path(name).is_dir():
            raise UsageError(f"'{name}' is neither a model directory nor one of the templates {', '.join(SHIPPED)}")
        return load_renderer(Path(name))
    template, tokenizer = shipped_template(name), load_renderer(TINY, "tiny").tokenizer
    tokenizer.add_tokens(re.findall(r"<\|\w+\|>|\[/?[A-Z_]+\]|</s>", template.source), special_tokens=True)
    tokenizer.add_tokens(list(template.stops), special_tokens=True)
    tokenizer.bos_token, tokenizer.eos_token = "<|begin_of_text|>", template.stops[0]
    return Renderer(tokenizer, template)


def _any_of(texts: Sequence[str]) -> re.Pattern[str]:
    """Matches any of ``texts``, the longest first, as the tokenizer does."""
    return re.compile("|".join(re.escape(text) for text in sorted(set(texts), key=len, reverse=True)))
