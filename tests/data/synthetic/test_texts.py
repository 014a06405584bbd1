import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.data.conversation import Conversation
from seatrial.data.synthetic import Split, corpus, texts
from seatrial.data.synthetic.values import Universe, owner
from seatrial.data.synthetic.words import VERBS
from tests.data.synthetic.grammar import all_frames

DOCUMENTS = list(texts(4000, seed=5))
WHOLE = ["\n".join(message.content for message in document.messages) for document in DOCUMENTS]


def test_no_tool_of_the_corpus_occurs() -> None:
    text = "\n".join(WHOLE)
    for frame in all_frames():
        assert not re.search(rf"\b{frame.name}\b", text)
        for description in frame.descriptions:
            assert not re.search(rf"\b{re.escape(description.rstrip('.').lower())}\b", text.lower())


def test_no_request_of_the_corpus_occurs() -> None:
    """Nor any part of one between two slots that is three words long."""
    text = "\n".join(WHOLE)
    parts = {
        part.strip()
        for frame in all_frames()
        for template in (*frame.templates, *frame.held_templates)
        for part in template.pieces[::2]
        if len(part.split()) >= 3
    }
    assert len(parts) > 200
    assert [part for part in parts if re.search(rf"\b{re.escape(part)}\b", text)] == []


def test_the_answer_format_does_not_occur() -> None:
    for text in WHOLE:
        assert "tool_call" not in text
        assert '"arguments"' not in text
        assert "<tools>" not in text


def test_values_are_of_their_own_universe() -> None:
    text = "\n".join(WHOLE)
    drawn = re.findall(r"\b\d{4}-\d\d-\d\d\b|\b\d\d:\d\d\b|\b\d+\.\d\b|[a-z]+(?=@)", text)
    assert len(drawn) > 1000
    assert {owner(value) for value in drawn} == {Universe.TEXTS}
    seen = {value for split in Split for row in corpus(600, seed=1, split=split) for value in strings(row)}
    written = {value for document in DOCUMENTS for value in json_strings(document.messages[-1].content)}
    assert len(seen) > 1000
    assert len(written) > 1000
    assert {value for value in seen & written if not value.islower() or not value.isalpha()} == set()


def strings(row: Conversation) -> Iterator[str]:
    for message in row.messages:
        for call in message.tool_calls:
            for value in call.arguments.values():
                yield from (item for item in (value if isinstance(value, list) else [value]) if isinstance(item, str))


def json_strings(text: str) -> Iterator[str]:
    """String values in any of the notations: a JSON string that is no key."""
    yield from re.findall(r'"([^"]+)"(?!:)', text)


def test_documents_vary_and_differ() -> None:
    assert len(set(WHOLE)) > 0.99 * len(WHOLE)
    lengths = Counter(len(document.messages) for document in DOCUMENTS)
    assert {2, 3, 5} <= lengths.keys()
    assert {document.category for document in DOCUMENTS} == {"text"}
    for notation in ('"properties"', '"fields"', "?: ", " // ", " = ", '{"card": "', "</filled>", "Backwards: "):
        assert 10 < sum(notation in text for text in WHOLE) < 3900, notation


def test_what_is_filled_in_stands_in_the_note() -> None:
    checked = 0
    for document in DOCUMENTS:
        said = "\n".join(message.content for message in document.messages[:-1])
        for value in filled(document.messages[-1].content):
            assert str(value) in said, (value, said)
            checked += 1
    assert checked > 5000


def filled(answer: str) -> Iterator[Any]:
    """Values of the JSON objects in an answer."""
    for line in answer.splitlines():
        start = line.find("{")
        if start < 0 or not line.endswith("}"):
            continue
        pending = list(json.loads(line[start:]).values())
        while pending:
            value = pending.pop()
            if isinstance(value, dict):
                pending += value.values()
            elif isinstance(value, list):
                pending += value
            elif not isinstance(value, bool):
                yield value


def test_verbs_of_two_meanings_are_kept_apart() -> None:
    counts = Counter(verb for verbs in VERBS for verb in verbs)
    assert [verb for verb, count in counts.items() if count > 1] == []


@settings(max_examples=60, deadline=None)
@given(st.integers(), st.integers(0, 10**9))
def test_any_document_is_an_exchange_and_depends_on_its_number_alone(seed: int, start: int) -> None:
    first, second = texts(2, seed=seed, start=start)
    assert list(texts(1, seed=seed, start=start + 1)) == [second]
    for document in (first, second):
        roles = [message.role for message in document.messages]
        assert roles[-1] == "assistant"
        assert roles in (
            ["user", "assistant"] * (len(roles) // 2),
            ["system"] + ["user", "assistant"] * (len(roles) // 2),
        )
        assert all(message.content.strip() for message in document.messages)
        assert not any("{}" in message.content or "<n>" in message.content for message in document.messages)
