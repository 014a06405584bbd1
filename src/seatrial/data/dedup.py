"""Finding rows that say the same, or nearly the same, as one before them."""

from enum import StrEnum
from hashlib import blake2b

import msgspec
import numpy as np

from seatrial.data.conversation import Conversation
from seatrial.data.reason import Reason
from seatrial.data.similarity import PERMUTATIONS, NearIndex, minhash, ngram_hashes


class Dedup(StrEnum):
    """Which repetitions of earlier rows are left out."""

    NONE = "none"
    EXACT = "exact"
    NEAR = "near"


NGRAM_WORDS = 5


class Fingerprint(msgspec.Struct, frozen=True):
    """``exact`` hashes the whole example, ``tools`` its tool names; ``user`` is the MinHash of what users say."""

    exact: bytes
    tools: bytes = b""
    user: bytes = b""


def fingerprint(conversation: Conversation, dedup: Dedup) -> Fingerprint:
    """Fingerprint of what the example teaches: ids, the order of keys and of tools do not count."""
    turns = [[m.role, m.content, [[call.name, call.arguments] for call in m.tool_calls]] for m in conversation.messages]
    tools = sorted(msgspec.json.encode(tool, order="sorted") for tool in conversation.tools)
    exact = _hash(msgspec.json.encode([turns, [tool.decode() for tool in tools]], order="sorted"))
    if dedup != Dedup.NEAR:
        return Fingerprint(exact)
    names = _hash(msgspec.json.encode(sorted(tool.name for tool in conversation.tools)))
    said = "\n".join(message.content for message in conversation.messages if message.role == "user")
    return Fingerprint(exact, names, minhash(ngram_hashes(said, NGRAM_WORDS)).tobytes())


class Seen:
    """Fingerprints of the rows so far: about 100 bytes a row for exact duplicates, 2 kB for near ones.

    A near duplicate asks nearly the same (Jaccard similarity of word 5-grams at least 0.8) with tools of the same
    names: the same question with other tools has another answer.
    """

    def __init__(self, dedup: Dedup) -> None:
        self._dedup = dedup
        self._exact: set[bytes] = set()
        self._near = NearIndex()

    def add(self, mark: Fingerprint) -> Reason | None:
        """Remember a row; DUPLICATE or NEAR_DUPLICATE when an earlier one said the same."""
        if self._dedup == Dedup.NONE:
            return None
        if mark.exact in self._exact:
            return Reason.DUPLICATE
        self._exact.add(mark.exact)
        if self._dedup == Dedup.NEAR:
            signature = np.frombuffer(mark.user, dtype=np.uint32, count=PERMUTATIONS)
            if self._near.find(signature, mark.tools):
                return Reason.NEAR_DUPLICATE
            self._near.add(signature, mark.tools)
        return None


def _hash(content: bytes) -> bytes:
    return blake2b(content, digest_size=16).digest()
