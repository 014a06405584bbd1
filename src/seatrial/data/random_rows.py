"""Rows of random tokens, as long as real ones: what a step costs depends on lengths, not on what is said."""

import json
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from seatrial.data.dataset import TokenRows
from seatrial.data.render import Rendered
from seatrial.errors import UsageError

Lengths = Literal["fixed", "tool-calls"]

PROFILE = Path(__file__).parents[1] / "assets" / "lengths" / "tool-calls.json"
"""Quantiles of the lengths and trained shares of real function-calling rows; bench/profile_lengths.py measures them."""


def random_rows(kind: Lengths, *, length: int, tokens: int, vocabulary: int, seed: int) -> TokenRows:
    """Rows of ``tokens`` tokens in all, and the same ones for the same arguments.

    fixed: all of ``length`` tokens, with loss on every token. tool-calls: lengths and trained shares drawn from the
    profile, independently of each other, with the trained tokens last; rows longer than ``length`` are left out, as
    training leaves them out.

    Raises:
        UsageError: next to no row of the profile is that short.
    """
    random = np.random.default_rng(seed)
    if kind == "fixed":
        lengths_N = np.full(max(1, tokens // length), length)
        shares_N = np.ones(len(lengths_N))
    else:
        lengths_N, shares_N = _drawn(random, length=length, tokens=tokens)
    rows = []
    for count, share in zip(lengths_N.tolist(), shares_N.tolist(), strict=True):
        trained = np.arange(count) >= count - max(1, round(count * share))
        rows.append(Rendered(random.integers(0, vocabulary, count, dtype=np.int32), trained))
    return TokenRows(tuple(rows), {})


def _drawn(
    random: np.random.Generator, *, length: int, tokens: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    profile = json.loads(PROFILE.read_text())
    if profile["lengths_tokens"][1] > length:
        raise UsageError(f"--length {length}: hardly a row of function calls is that short; take 256 or more")
    at = np.linspace(0, 1, len(profile["lengths_tokens"]))
    # No row is longer than the longest of the profile, so this many draws are never too few.
    count = 2 * tokens // profile["lengths_tokens"][0] + 1
    lengths_N = np.interp(random.random(count), at, profile["lengths_tokens"]).round().astype(np.int64)
    shares_N = np.interp(random.random(count), at, profile["trained_share"])
    fits_N = lengths_N <= length
    lengths_N, shares_N = lengths_N[fits_N], shares_N[fits_N]
    enough = int(np.searchsorted(lengths_N.cumsum(), tokens)) + 1
    return lengths_N[:enough], shares_N[:enough]
