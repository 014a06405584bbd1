import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.data.similarity import ALIKE, NearIndex, minhash, ngram_hashes


def texts_of_similarity(shared: int, own: int, seed: int) -> tuple[str, str, float]:
    """Two texts whose single words have the Jaccard similarity shared / (shared + 2 own)."""
    rng = random.Random(seed)
    words = rng.sample(range(10**6), shared + 2 * own)
    common, first, second = words[:shared], words[shared : shared + own], words[shared + own :]
    return " ".join(map(str, common + first)), " ".join(map(str, common + second)), shared / (shared + 2 * own)


@pytest.mark.parametrize(("shared", "own"), [(0, 100), (50, 50), (80, 10), (90, 5), (100, 0)])
def test_equal_places_of_signatures_estimate_the_similarity(shared: int, own: int) -> None:
    estimates = []
    for seed in range(20):
        one, two, truth = texts_of_similarity(shared, own, seed)
        estimates.append(np.mean(minhash(ngram_hashes(one, 1)) == minhash(ngram_hashes(two, 1))))
    assert abs(np.mean(estimates) - truth) < 0.03


@pytest.mark.parametrize(("shared", "own", "least", "most"), [(95, 2, 0.95, 1.0), (40, 30, 0.0, 0.05)])
def test_the_index_finds_the_similar_and_not_the_different(shared: int, own: int, least: float, most: float) -> None:
    found = 0
    for seed in range(100):
        one, two, _ = texts_of_similarity(shared, own, seed)
        index = NearIndex()
        index.add(minhash(ngram_hashes(one, 1)))
        found += index.find(minhash(ngram_hashes(two, 1)))
    assert least <= found / 100 <= most
    assert ALIKE == 0.8


def test_scopes_do_not_see_each_other() -> None:
    index = NearIndex()
    signature = minhash(ngram_hashes("a b c d e f", 5))
    index.add(signature, b"x")
    assert index.find(signature, b"x")
    assert not index.find(signature, b"y")


def test_case_and_punctuation_do_not_count_and_order_does() -> None:
    assert (ngram_hashes("The tide, please!", 2) == ngram_hashes("the TIDE please", 2)).all()
    assert set(ngram_hashes("a b", 2).tolist()) != set(ngram_hashes("b a", 2).tolist())


@given(st.text(), st.integers(1, 13))
@settings(max_examples=100)
def test_any_text_has_hashes_and_a_signature(text: str, n: int) -> None:
    hashes_N = ngram_hashes(text, n)
    assert (minhash(hashes_N) == minhash(np.flip(hashes_N))).all()
