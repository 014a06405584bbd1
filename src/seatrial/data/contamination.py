"""Whether a training row repeats a benchmark: its questions, or the tools that it calls."""

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from seatrial.data.conversation import Conversation, Rejection, Tool, decode
from seatrial.data.reading import input_files, read_rows
from seatrial.data.reason import Unfaithful, excerpt
from seatrial.data.schema import normalise_tools
from seatrial.data.similarity import WORD, NearIndex, minhash, ngram_hashes
from seatrial.data.sources import convert_auto
from seatrial.errors import UsageError

Json = Any
NGRAM_WORDS = 5
LONG_NGRAM_WORDS = 13  # the length at which GPT-3 (arXiv 2005.14165, appendix C) called an overlap contamination


@dataclass(frozen=True)
class Benchmark:
    """What a benchmark asks and with which tools, as hashes; ``near`` finds questions that are almost its own."""

    questions: frozenset[bytes]
    long_ngrams: frozenset[int]
    near: NearIndex
    tools: frozenset[bytes]


def load_benchmark(path: Path) -> Benchmark:
    """Questions and tools of a benchmark: BFCL's rows, seatrial records, or any format that ``--source auto`` reads.

    Raises:
        UsageError: unreadable, or a row without a question; names the row.
    """
    questions: set[bytes] = set()
    long_ngrams: set[int] = set()
    near = NearIndex()
    tools: set[bytes] = set()
    for file in input_files(path):
        for line, text in read_rows(file):
            try:
                asked, declared = _question(text)
            except (ValueError, Unfaithful) as error:
                raise UsageError(f"{file}:{line}: not a row of a benchmark: {excerpt(str(error))}") from error
            tools.update(map(_tool_hash, declared))
            for question in asked:
                questions.add(_text_hash(question))
                near.add(minhash(ngram_hashes(question, NGRAM_WORDS)))
                if len(WORD.findall(question)) >= LONG_NGRAM_WORDS:
                    long_ngrams.update(ngram_hashes(question, LONG_NGRAM_WORDS).tolist())
    return Benchmark(frozenset(questions), frozenset(long_ngrams), near, frozenset(tools))


def overlap(conversation: Conversation, benchmark: Benchmark) -> str:
    """How the row overlaps with the benchmark; empty when it does not.

    A user's turn is the same, shares 13 words in a row or is nearly the same (estimated Jaccard similarity of word
    5-grams of at least 0.8), or a tool that the row calls has the name and the parameters of one of the benchmark's.
    """
    for message in conversation.messages:
        if message.role == "user":
            if _text_hash(message.content) in benchmark.questions:
                return f"same question: {excerpt(message.content)}"
            long = ngram_hashes(message.content, LONG_NGRAM_WORDS).tolist()
            if not benchmark.long_ngrams.isdisjoint(long):
                return f"{LONG_NGRAM_WORDS} words in a row: {excerpt(message.content)}"
            if benchmark.near.find(minhash(ngram_hashes(message.content, NGRAM_WORDS))):
                return f"nearly the same question: {excerpt(message.content)}"
    called = {call.name for message in conversation.messages for call in message.tool_calls}
    same = [tool.name for tool in conversation.tools if tool.name in called and _tool_hash(tool) in benchmark.tools]
    return f"same tool: {', '.join(same)}" if same else ""


def _question(text: bytes) -> tuple[list[str], tuple[Tool, ...]]:
    """What users say in a row, and the tools it declares."""
    row = msgspec.json.decode(text, type=dict[str, Any])
    if "question" in row and "function" in row:
        return list(_user_texts(row["question"])), normalise_tools(row["function"])[0]
    conversation = decode(text) if isinstance(row.get("source"), str) and "messages" in row else convert_auto(row)
    if isinstance(conversation, Rejection):
        raise ValueError(f"{conversation.reason}: {conversation.detail}")
    return [message.content for message in conversation.messages if message.role == "user"], conversation.tools


def _user_texts(turns: Json) -> Iterator[str]:
    """BFCL nests lists of messages, one list a turn."""
    if isinstance(turns, str):
        yield turns
    elif isinstance(turns, list):
        for turn in turns:
            yield from _user_texts(turn)
    elif isinstance(turns, dict) and turns.get("role") == "user" and isinstance(turns.get("content"), str):
        yield turns["content"]


def _text_hash(text: str) -> bytes:
    return _hash(" ".join(WORD.findall(text.lower())).encode())


def _tool_hash(tool: Tool) -> bytes:
    """Name, and the names and types of the parameters: descriptions are often paraphrased."""
    properties = tool.parameters.get("properties", {})
    types = {name: spec.get("type") if isinstance(spec, dict) else None for name, spec in properties.items()}
    return _hash(msgspec.json.encode([tool.name, types], order="sorted"))


def _hash(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()
