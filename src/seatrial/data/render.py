"""Rendering: a conversation as tokens, and which of them are trained on, through a chat template.

What is trained must be what is served. The tokens of a conversation come from one tokenisation of the template's
whole text. An assistant turn begins where the generation prompt ends and ends with its stop token; both borders
are found by rendering prefixes of the conversation, and a row is refused unless each prefix's own tokens, which are
what a server feeds to the model, equal the first tokens of the whole.

Borders are carried from text to tokens without character offsets (byte-level tokenizers report them loosely):
added tokens such as ``<|im_end|>`` split the text before anything else happens, so the n-th of them in the text is
the n-th of them among the tokens, and only the few characters between the last one and the border are tokenised again.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path

import jinja2
import msgspec
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
from seatrial.errors import UsageError

Ids = npt.NDArray[np.int32]
Mask = npt.NDArray[np.bool_]


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


@dataclass(frozen=True)
class Span:
    """Where an assistant turn stands in the rendered text: from the end of its prompt to the end of its stop token."""

    start: int
    end: int


@dataclass(frozen=True)
class Renderer:
    """A tokenizer with a chat template, and the parser that reads the calls back out of the model's text."""

    tokenizer: PreTrainedTokenizerFast
    template: str
    parser: str
    stops: tuple[str, ...]

    def render(self, conversation: Conversation, train_on: TrainOn = TrainOn.ALL) -> Rendered | Rejection:
        """Tokens of the whole conversation and the mask of its targets, or why it cannot be rendered faithfully."""
        if message := self._control_token_in(conversation):
            return Rejection("control token in text", message)
        messages, tools = template_messages(conversation.messages), template_tools(conversation.tools)
        try:
            text = self._text(messages, tools, generation_prompt=False)
            spans = self._spans(conversation.messages, messages, tools, text, train_on)
        except jinja2.TemplateError as error:
            return Rejection("template refuses", str(error))
        if isinstance(spans, Rejection):
            return spans
        ids = self._encode(text)
        trained = np.zeros(len(ids), dtype=np.bool_)
        if train_on is TrainOn.TEXT:
            trained[1:] = True
            return Rendered(ids, trained)
        borders = _Borders(self, text, ids)
        for span in spans:
            start, end = borders.token(span.start), borders.token(span.end)
            if start is None or end is None:
                return Rejection("prompt tokenised differently", repr(text[max(0, span.start - 20) : span.start + 20]))
            trained[start:end] = True
        return Rendered(ids, trained)

    def prompt(self, messages: tuple[Message, ...], tools: tuple[Tool, ...] = ()) -> Ids:
        """What a server feeds to the model so that it answers ``messages``.

        Raises:
            UsageError: the chat template refuses the messages.
        """
        try:
            text = self._text(template_messages(messages), template_tools(tools), generation_prompt=True)
        except jinja2.TemplateError as error:
            raise UsageError(f"the chat template refuses these messages: {error}") from error
        return self._encode(text)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Ids of the tokens that end an assistant turn."""
        return tuple(self._encode(stop).item() for stop in self.stops)

    @property
    def pad_id(self) -> int:
        """The tokenizer's padding token, or its end-of-sequence token; padding is never trained on or attended to."""
        pad = self.tokenizer.pad_token_id
        return int(pad if pad is not None else self.tokenizer.eos_token_id)

    def decode(self, ids: Sequence[int] | Ids) -> str:
        """Text of ``ids``, added tokens included."""
        return str(self.tokenizer.decode(np.asarray(ids).tolist(), skip_special_tokens=False))

    def _text(
        self, messages: list[dict[str, Json]], tools: list[dict[str, Json]] | None, *, generation_prompt: bool
    ) -> str:
        text = self.tokenizer.apply_chat_template(
            messages,
            tools=list(tools) if tools else None,
            chat_template=self.template,
            tokenize=False,
            add_generation_prompt=generation_prompt,
        )
        return str(text)

    def _encode(self, text: str) -> Ids:
        # The template has written the beginning-of-sequence token already; the tokenizer must not add a second.
        return np.asarray(self.tokenizer(text, add_special_tokens=False)["input_ids"], dtype=np.int32)

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
        if train_on is TrainOn.TEXT:
            turns = []
        elif train_on is TrainOn.LAST:
            turns = turns[-1:]
        spans = []
        for turn in turns:
            if originals[turn].weight == 0:
                continue
            before = self._text(messages[:turn], tools, generation_prompt=True) if turn else ""
            last = turn == len(messages) - 1
            after = text if last else self._text(messages[: turn + 1], tools, generation_prompt=False)
            if not text.startswith(before) or not text.startswith(after) or len(before) > len(after):
                return Rejection("template rewrites earlier turns", f"message {turn}")
            end = self._stop_end(after[len(before) :])
            if end is None:
                return Rejection("no stop token after the turn", f"message {turn}")
            spans.append(Span(len(before), len(before) + end))
        return spans

    def _stop_end(self, turn: str) -> int | None:
        """End of the last stop token of ``turn``, provided that only white space follows it."""
        trimmed = turn.rstrip()
        return len(trimmed) if trimmed.endswith(self.stops) else None

    def _control_token_in(self, conversation: Conversation) -> str | None:
        """A control token that stands as plain text in the conversation: it would end a turn in its middle."""
        found = self._control_tokens.search(msgspec.json.encode(conversation).decode())
        return found.group() if found else None

    @cached_property
    def _control_tokens(self) -> re.Pattern[str]:
        special = [token.content for token in self.tokenizer.added_tokens_decoder.values() if token.special]
        return _any_of([*special, *self.stops])

    @cached_property
    def _added(self) -> tuple[re.Pattern[str], Ids]:
        """All added tokens as a pattern over text, and their ids."""
        added = self.tokenizer.added_tokens_decoder
        return _any_of([token.content for token in added.values()]), np.asarray(sorted(added), dtype=np.int32)

    @cached_property
    def _encode_tail(self) -> Callable[[str], Ids]:
        """The same few characters end every prompt, so they are tokenised once."""
        return lru_cache(maxsize=1024)(self._encode)


class _Borders:
    """Carries positions in a text to positions among its tokens."""

    def __init__(self, renderer: Renderer, text: str, ids: Ids) -> None:
        pattern, added_ids = renderer._added
        self._renderer, self._text, self._ids = renderer, text, ids
        self._characters = [match.start() for match in pattern.finditer(text)]
        self._tokens = np.flatnonzero(np.isin(ids, added_ids)).tolist()

    def token(self, character: int) -> int | None:
        """The index such that the tokens before it are exactly those of ``text[:character]``; None if there is none."""
        if len(self._characters) != len(self._tokens):
            return None
        before = bisect_left(self._characters, character)
        start_character = self._characters[before - 1] if before else 0
        start_token = self._tokens[before - 1] if before else 0
        tail = self._renderer._encode_tail(self._text[start_character:character])
        end_token = start_token + len(tail)
        return end_token if np.array_equal(self._ids[start_token:end_token], tail) else None


def load_renderer(model_dir: Path, template: str | None = None) -> Renderer:
    """The tokenizer in ``model_dir`` with the chat template called ``template``, or with its own when None.

    Raises:
        UsageError: no tokenizer there, an unknown template, or a tokenizer without a chat template.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(model_dir)
    except (OSError, ValueError) as error:
        raise UsageError(f"{model_dir}: no tokenizer can be loaded from it: {error}") from error
    if not isinstance(tokenizer, PreTrainedTokenizerFast):
        raise UsageError(f"{model_dir}: {type(tokenizer).__name__} is not a fast tokenizer (tokenizer.json)")
    if template is None:
        source = tokenizer.chat_template
        if not isinstance(source, str):
            raise UsageError(
                f"{model_dir}: the tokenizer has no chat template; name one of: {', '.join(shipped_templates())}"
            )
    else:
        source = read_template(template)
    return Renderer(tokenizer, source, "hermes", (tokenizer.eos_token,))


def shipped_templates() -> tuple[str, ...]:
    """Names of the chat templates that come with seatrial."""
    folder = files("seatrial") / "assets" / "templates"
    return tuple(sorted(Path(entry.name).stem for entry in folder.iterdir() if entry.name.endswith(".jinja")))


def read_template(name: str) -> str:
    """Source of a shipped chat template.

    Raises:
        UsageError: no template of that name.
    """
    if name not in shipped_templates():
        raise UsageError(f"no chat template called '{name}'; known: {', '.join(shipped_templates())}")
    return (files("seatrial") / "assets" / "templates" / f"{name}.jinja").read_text()


def _any_of(texts: Sequence[str]) -> re.Pattern[str]:
    """Matches any of ``texts``, the longest first, as the tokenizer does."""
    return re.compile("|".join(re.escape(text) for text in sorted(set(texts), key=len, reverse=True)))
