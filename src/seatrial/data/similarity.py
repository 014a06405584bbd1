"""Word n-grams, MinHash signatures of them (Broder 1997) and an index that finds similar ones.

Shapes: N n-grams of a text, P permutations.
"""

import re
import zlib

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Signature = npt.NDArray[np.uint32]

PERMUTATIONS = 128
# 16 bands of 8 rows: of two texts with a Jaccard similarity of 0.8, 95 % share a band; of 0.9, practically all do.
BANDS = 16
ALIKE = 0.8
WORD = re.compile(r"\w+")
_BASE = np.uint64(0x9E3779B97F4A7C15)  # odd, so that multiplication modulo 2^64 loses nothing
_GENERATOR = np.random.default_rng(0)
_FACTORS_P = _GENERATOR.integers(0, 2**63, PERMUTATIONS, dtype=np.uint64) * np.uint64(2) + np.uint64(1)
_OFFSETS_P = _GENERATOR.integers(0, 2**63, PERMUTATIONS, dtype=np.uint64)


def ngram_hashes(text: str, n: int) -> Hashes:
    """Hashes of the runs of ``n`` words, case and punctuation aside; of the whole text when it is shorter."""
    words = np.array([zlib.crc32(word.encode()) for word in WORD.findall(text.lower())], dtype=np.uint64)
    n = min(n, max(len(words), 1))
    hashes_N = np.zeros(max(len(words) - n + 1, 0), dtype=np.uint64)
    for offset in range(n):
        hashes_N = (hashes_N + words[offset : offset + len(hashes_N)]) * _BASE
        hashes_N ^= hashes_N >> np.uint64(29)
    return hashes_N


def minhash(hashes_N: Hashes) -> Signature:
    """The smallest of N hashes under each of P permutations (multiply-shift, Dietzfelbinger et al. 1997)."""
    if not len(hashes_N):
        return np.full(PERMUTATIONS, np.iinfo(np.uint32).max, dtype=np.uint32)
    permuted_NP = hashes_N[:, None] * _FACTORS_P + _OFFSETS_P
    smallest_P: Hashes = permuted_NP.min(axis=0)
    return (smallest_P >> np.uint64(32)).astype(np.uint32)


class NearIndex:
    """Signatures seen so far, about 2 kB each. Only those added under the same ``scope`` are compared."""

    def __init__(self) -> None:
        self._signatures: list[Signature] = []
        self._bands: dict[bytes, int] = {}

    def find(self, signature: Signature, scope: bytes = b"") -> bool:
        """Whether a signature whose estimated Jaccard similarity is at least ``ALIKE`` was added."""
        candidates = {self._bands[key] for key in _band_keys(signature, scope) if key in self._bands}
        return any(np.mean(self._signatures[index] == signature) >= ALIKE for index in candidates)

    def add(self, signature: Signature, scope: bytes = b"") -> None:
        for key in _band_keys(signature, scope):
            self._bands.setdefault(key, len(self._signatures))
        self._signatures.append(signature)


def _band_keys(signature: Signature, scope: bytes) -> list[bytes]:
    return [bytes([number]) + scope + band.tobytes() for number, band in enumerate(np.split(signature, BANDS))]
