"""From what was measured to who is at fault. Pure.

A bout is as fast as the slower of its two nodes. In logarithms, rate = centre of the rail + effect of one node + effect
of the other + rest, and medians of medians separate them (median polish: J. Tukey, Exploratory Data Analysis, 1977): a
node that is slow with everybody has a low effect; a path that is slow between two sound nodes is left in the rest.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from seatrial.accept.blame.bouts import Bouts, Floats, Ints
from seatrial.accept.fleet import ROBUST_Z
from seatrial.accept.limits import FAIL_SHARE

LOW = np.log(FAIL_SHARE)
"""The same 7 % that a limit allows a part below its reference."""
SUSPECT_Z = 1.5
"""Of a first look, which accuses nobody: it costs a suspect a second look, and a culprit that it misses is free."""
POLISHES = 8
FLICKER_SHARE = 0.08
"""Of a port's first bouts: low more often than this is worth a second look, since congestion alone is rarer."""
FLICKER_TIMES = 2.0
"""And more often than others by so much: on a busy day congestion is everywhere."""


@dataclass(frozen=True)
class Polished:
    """``centre_L`` and ``effect_NL`` are logarithms; ``rest_M`` what no node explains, in the order of the bouts.

    ``margin_L``: how far below the centre a single measurement is low. It is wider where measurements scatter.
    """

    centre_L: Floats
    effect_NL: Floats
    rest_M: Floats
    margin_L: Floats


def grouped_median(key_M: Ints, value_M: Floats, groups: int) -> Floats:
    """Median of the values of each key; NaN for keys without any. Values that are NaN do not count."""
    sound_M = np.isfinite(value_M)
    key_M, value_M = key_M[sound_M], value_M[sound_M]
    order_M = np.lexsort((value_M, key_M))
    sorted_M = value_M[order_M]
    count_K = np.bincount(key_M, minlength=groups)
    start_K = np.concatenate([[0], np.cumsum(count_K)[:-1]])
    median_K = np.full(groups, np.nan)
    some_K = count_K > 0
    low_K = start_K[some_K] + (count_K[some_K] - 1) // 2
    high_K = start_K[some_K] + count_K[some_K] // 2
    median_K[some_K] = (sorted_M[low_K] + sorted_M[high_K]) / 2
    return median_K


def polish(bouts: Bouts, nodes: int, rails: int) -> Polished:
    """Median polish of the logarithms of all rates."""
    log_M = np.log(np.maximum(bouts.rate_M, 1e-9))
    both_M2 = np.concatenate([bouts.a_M, bouts.b_M]) * rails + np.tile(bouts.rail_M, 2)
    effect_NL = np.zeros((nodes, rails))
    centre_L = grouped_median(bouts.rail_M, log_M, rails)
    for _ in range(POLISHES):
        at_a_M, at_b_M = effect_NL[bouts.a_M, bouts.rail_M], effect_NL[bouts.b_M, bouts.rail_M]
        left_M = log_M - centre_L[bouts.rail_M]
        own_M2 = np.concatenate([left_M - at_b_M, left_M - at_a_M])
        effect_NL = grouped_median(both_M2, own_M2, nodes * rails).reshape(nodes, rails)
        # A node nobody heard of has no effect; one that failed in all its bouts has its own verdict.
        effect_NL = np.nan_to_num(effect_NL, nan=0.0)
        effect_NL -= np.median(effect_NL, axis=0)
        without_M = log_M - effect_NL[bouts.a_M, bouts.rail_M] - effect_NL[bouts.b_M, bouts.rail_M]
        centre_L = grouped_median(bouts.rail_M, without_M, rails)
    at_a_M, at_b_M = effect_NL[bouts.a_M, bouts.rail_M], effect_NL[bouts.b_M, bouts.rail_M]
    # Of two slow nodes the slower one decides, so their effects do not add up.
    slower_M = np.where((at_a_M < LOW) & (at_b_M < LOW), np.minimum(at_a_M, at_b_M), at_a_M + at_b_M)
    return Polished(centre_L, effect_NL, log_M - centre_L[bouts.rail_M] - slower_M, np.full(rails, -LOW))


def low_ports(polished: Polished) -> NDArray[np.bool_]:
    """low_NL: ports slow with everybody: 7 % below the others of their rail, and outside their spread."""
    effect_NL = polished.effect_NL
    spread_L = upper_spread(effect_NL)
    low_NL: NDArray[np.bool_] = (effect_NL < LOW) & (0.6745 * -effect_NL > SUSPECT_Z * spread_L)
    return low_NL


def upper_spread(value_NL: Floats) -> Floats:
    """Median distance of what lies above the median, by column: faults only pull down, and must not widen it."""
    above_NL = value_NL - np.nanmedian(value_NL, axis=0)
    spread_L: Floats = np.nanmedian(np.where(above_NL >= 0, above_NL, np.nan), axis=0)
    return spread_L


def shared_lows(bouts: Bouts, low_M: NDArray[np.bool_], nodes: int, rails: int) -> NDArray[np.bool_]:
    """shared_M: lows of a bout in which most rails were low at once. No port does that, but congestion, or a node."""
    if rails == 1:
        return np.zeros_like(low_M)
    _, dense_M = np.unique((bouts.turn_M * nodes + bouts.a_M) * nodes + bouts.b_M, return_inverse=True)
    share_K = np.bincount(dense_M, weights=low_M) / np.bincount(dense_M)
    shared_M: NDArray[np.bool_] = low_M & (share_K > 0.5)[dense_M]
    return shared_M


def flickering_ports(bouts: Bouts, polished: Polished) -> NDArray[np.bool_]:
    """flickers_NL: ports that are slow now and then, in more rounds than one."""
    nodes, rails = polished.effect_NL.shape
    key_M2 = np.concatenate([bouts.a_M, bouts.b_M]) * rails + np.tile(bouts.rail_M, 2)
    low_M = ~(polished.rest_M > LOW)
    low_M &= ~shared_lows(bouts, low_M, nodes, rails)
    low_K = np.bincount(key_M2, weights=np.tile(low_M, 2), minlength=nodes * rails)
    all_K = np.bincount(key_M2, minlength=nodes * rails)
    turns = int(bouts.turn_M.max(initial=0)) + 1
    hit_KT = np.zeros((nodes * rails, turns), dtype=bool)
    hit_KT[key_M2[np.tile(low_M, 2)], np.tile(bouts.turn_M, 2)[np.tile(low_M, 2)]] = True
    share_K = low_K / np.maximum(all_K, 1)
    often_K = share_K > max(FLICKER_SHARE, FLICKER_TIMES * float(np.median(share_K)))
    flickers_NL: NDArray[np.bool_] = (often_K & (hit_KT.sum(axis=1) >= 2)).reshape(nodes, rails)
    return flickers_NL


def low_paths(bouts: Bouts, polished: Polished) -> list[tuple[int, int, int]]:
    """(node, node, rail) whose median is low although both nodes are sound with others."""
    nodes, rails = polished.effect_NL.shape
    if not len(bouts.rate_M):
        return []
    low_M = ~(polished.rest_M > LOW)
    bouts_alone = ~shared_lows(bouts, low_M, nodes, rails)
    bouts, rest_M = bouts.where(bouts_alone), polished.rest_M[bouts_alone]
    key_M = (bouts.a_M * nodes + bouts.b_M) * rails + bouts.rail_M
    keys_K, dense_M = np.unique(key_M, return_inverse=True)
    rest_K = grouped_median(dense_M, rest_M, len(keys_K))
    spread = np.nanmedian(np.abs(rest_K - np.nanmedian(rest_K)))
    low_K = keys_K[~(rest_K > min(LOW, -ROBUST_Z * spread / 0.6745))]
    return [(int(key) // rails // nodes, int(key) // rails % nodes, int(key) % rails) for key in low_K]


def low_parts(rate_NGR: Floats) -> NDArray[np.bool_]:
    """low_NG: parts whose median lies 7 % below that of all, and far outside the spread of all. NaN is not low."""
    rate_NG = np.median(rate_NGR, axis=-1)
    centre = np.nanmedian(rate_NG)
    spread = float(upper_spread(rate_NG.reshape(-1, 1))[0])
    lack_NG = centre - rate_NG
    low_NG: NDArray[np.bool_] = (lack_NG > (1 - FAIL_SHARE) * centre) & (0.6745 * lack_NG > ROBUST_Z * spread)
    return low_NG


STEADY_SHARE = 0.9
FLAPPING_BOUTS = 0.5
LEAST_LOW_IN_BOUT = 2


def steady_or_flapping(bouts: Bouts, centre: float, margin: float, shared_M: NDArray[np.bool_]) -> str:
    """Second pass, of one port against known-good ones: "steady", "flapping" or "sound".

    A measurement is low when it lies ``margin`` below ``centre``, in logarithms. Of a port that is nearly always low,
    half the margin is proof enough: noise would have to fall on the same side every time.

    Congestion hits single measurements, or all rails of a bout (``shared_M``); a flapping link is low in half of the
    rounds at least.
    """
    # A measurement that failed is NaN, and no comparison with NaN is true: it counts as low.
    low_M = ~(bouts.rate_M > centre * np.exp(-margin))
    if not len(low_M):
        return "sound"
    nearer_M = ~(bouts.rate_M > centre * np.exp(-max(-LOW, margin / 2)))
    if nearer_M.mean() >= STEADY_SHARE:
        return "steady"
    _, dense_M = np.unique(bouts.turn_M, return_inverse=True)
    low_T = np.bincount(dense_M, weights=low_M & ~shared_M)
    return "flapping" if (low_T >= LEAST_LOW_IN_BOUT).mean() >= FLAPPING_BOUTS else "sound"
