"""From what was measured to who is at fault. Pure.

A bout is as fast as the slower of its two nodes. In logarithms, rate = centre of the rail + effect of one node + effect
of the other + rest, and medians of medians separate them (median polish: J. Tukey, Exploratory Data Analysis, 1977): a
node that is slow with everybody has a low effect; a path that is slow between two sound nodes is left in the rest.
"""

from dataclasses import dataclass, replace
from math import comb
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from seatrial.accept.blame.bouts import Bouts, Floats, Ints
from seatrial.accept.fleet import LEAST_PARTS, ROBUST_Z
from seatrial.accept.limits import FAIL_SHARE

Mask = NDArray[np.bool_]

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
    """``effect_NL`` are logarithms; ``rest_M`` what no node explains, in the order of the bouts."""

    effect_NL: Floats
    rest_M: Floats


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


def _ports(bouts: Bouts, rails: int) -> Ints:
    """key_M2: the port of either end, which is node times rails plus rail: first those of a, then those of b."""
    return np.concatenate([bouts.a_M, bouts.b_M]) * rails + np.tile(bouts.rail_M, 2)


def _logs(bouts: Bouts) -> Floats:
    """log_M, in which what failed is as slow as can be."""
    log_M: Floats = np.log(np.maximum(np.nan_to_num(bouts.rate_M), 1e-9))
    return log_M


def polish(bouts: Bouts, nodes: int, rails: int) -> Polished:
    """Median polish of the logarithms of all rates."""
    log_M = np.log(np.maximum(bouts.rate_M, 1e-9))
    both_M2 = _ports(bouts, rails)
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
    return Polished(effect_NL, log_M - centre_L[bouts.rail_M] - slower_M)


def low_ports(polished: Polished) -> Mask:
    """low_NL: ports slow with everybody: 7 % below the others of their rail, and outside their spread."""
    effect_NL = polished.effect_NL
    spread_L = upper_spread(effect_NL)
    low_NL: Mask = (effect_NL < LOW) & (0.6745 * -effect_NL > SUSPECT_Z * spread_L)
    return low_NL


def upper_spread(value_NL: Floats) -> Floats:
    """Median distance of what lies above the median, by column: faults only pull down, and must not widen it."""
    above_NL = value_NL - np.nanmedian(value_NL, axis=0)
    spread_L: Floats = np.nanmedian(np.where(above_NL >= 0, above_NL, np.nan), axis=0)
    return spread_L


def shared_lows(bouts: Bouts, low_M: Mask, rails: int) -> Mask:
    """shared_M: lows of a bout in which most rails were low at once. No port does that, but congestion, or a node."""
    if rails == 1:
        return np.zeros_like(low_M)
    bout_M = _rounds(bouts)
    share_K = np.bincount(bout_M, weights=low_M) / np.bincount(bout_M)
    shared_M: Mask = low_M & (share_K > 0.5)[bout_M]
    return shared_M


def flickering_ports(bouts: Bouts, polished: Polished) -> Mask:
    """flickers_NL: ports that are slow now and then, in more rounds than one."""
    nodes, rails = polished.effect_NL.shape
    key_M2 = _ports(bouts, rails)
    scatter = float(np.median(np.abs(polished.rest_M)))
    low_M = ~(polished.rest_M > min(LOW, -SUSPECT_Z / 0.6745 * scatter))
    low_M &= ~shared_lows(bouts, low_M, rails)
    low_K = np.bincount(key_M2, weights=np.tile(low_M, 2), minlength=nodes * rails)
    all_K = np.bincount(key_M2, minlength=nodes * rails)
    turns = int(bouts.turn_M.max(initial=0)) + 1
    hit_KT = np.zeros((nodes * rails, turns), dtype=bool)
    hit_KT[key_M2[np.tile(low_M, 2)], np.tile(bouts.turn_M, 2)[np.tile(low_M, 2)]] = True
    share_K = low_K / np.maximum(all_K, 1)
    # What is low without this port. On few nodes the bouts of a culprit are many of everybody's, so half is no median.
    rail_K = np.tile(np.arange(rails), nodes)
    low_L = np.bincount(bouts.rail_M, weights=low_M, minlength=rails)
    all_L = np.bincount(bouts.rail_M, minlength=rails)
    without_K = (low_L[rail_K] - low_K) / np.maximum(all_L[rail_K] - all_K, 1)
    often_K = share_K > np.maximum(FLICKER_SHARE, FLICKER_TIMES * without_K)
    flickers_NL: Mask = (often_K & (hit_KT.sum(axis=1) >= 2)).reshape(nodes, rails)
    return flickers_NL


def worst_ports(suspected_NL: Mask, bouts: Bouts, least_good: int) -> Mask:
    """worst_NL: the suspects, less the mildest of a rail where fewer than ``least_good`` others would be left. What a
    port did in all its bouts counts, by the mean of logarithms: a median forgives those that are slow now and then."""
    nodes, rails = suspected_NL.shape
    key_M2 = _ports(bouts, rails)
    sums_K = np.bincount(key_M2, weights=np.tile(_logs(bouts), 2), minlength=nodes * rails)
    mean_NL = (sums_K / np.maximum(np.bincount(key_M2, minlength=nodes * rails), 1)).reshape(nodes, rails)
    place_NL = np.argsort(np.argsort(np.where(suspected_NL, mean_NL, np.inf), axis=0), axis=0)
    worst_NL: Mask = suspected_NL & (place_NL < nodes - least_good)
    return worst_NL


def low_paths(bouts: Bouts, polished: Polished) -> list[tuple[int, int, int]]:
    """(node, node, rail) whose median is low although both nodes are sound with others."""
    nodes, rails = polished.effect_NL.shape
    if not len(bouts.rate_M):
        return []
    low_M = ~(polished.rest_M > LOW)
    bouts_alone = ~shared_lows(bouts, low_M, rails)
    bouts, rest_M = bouts.where(bouts_alone), polished.rest_M[bouts_alone]
    key_M = (bouts.a_M * nodes + bouts.b_M) * rails + bouts.rail_M
    keys_K, dense_M = np.unique(key_M, return_inverse=True)
    rest_K = grouped_median(dense_M, rest_M, len(keys_K))
    spread = np.nanmedian(np.abs(rest_K - np.nanmedian(rest_K)))
    low_K = keys_K[~(rest_K > min(LOW, -ROBUST_Z * spread / 0.6745))]
    return [(int(key) // rails // nodes, int(key) // rails % nodes, int(key) % rails) for key in low_K]


def within_bouts(bouts: Bouts) -> Bouts:
    """The same with rates as shares of the median over all rails of their bout."""
    bout_M = _rounds(bouts)
    median_K = grouped_median(bout_M, np.nan_to_num(bouts.rate_M), int(bout_M.max(initial=-1)) + 1)
    return replace(bouts, rate_M=bouts.rate_M / np.maximum(median_K[bout_M], 1e-9))


def low_rails(bouts: Bouts) -> list[int]:
    """Rails whose median lies 7 % below that of all rails, and far outside their spread: of four or more."""
    rails = int(bouts.rail_M.max(initial=-1)) + 1
    rate_L = grouped_median(bouts.rail_M, np.nan_to_num(bouts.rate_M), rails)
    if np.isfinite(rate_L).sum() < LEAST_PARTS:
        return []
    return [int(rail) for rail in np.flatnonzero(low_parts(rate_L[None, :, None])[0])]


def low_parts(rate_NGR: Floats) -> Mask:
    """low_NG: parts whose median lies 7 % below that of all, and far outside the spread of all. NaN is not low."""
    rate_NG = np.median(rate_NGR, axis=-1)
    centre = np.nanmedian(rate_NG)
    spread = float(upper_spread(rate_NG.reshape(-1, 1))[0])
    lack_NG = centre - rate_NG
    low_NG: Mask = (lack_NG > (1 - FAIL_SHARE) * centre) & (0.6745 * lack_NG > ROBUST_Z * spread)
    return low_NG


STEADY_SHARE = 0.9
LEAST_LOW_IN_ROUND = 2
"""Congestion hits single measurements."""
FLAPPING_SHARE = 0.5
"""Of its rounds. What is low more rarely is no worse than a busy network."""
CONTROL_QUANTILE = 0.02
"""So few that hardly a round of the controls has two of them, and enough that their worst minute is not the line."""
CHANCE = 1e-3
"""That a suspect which is like the others falls behind them so often."""


@dataclass(frozen=True)
class Finding:
    """``loss``: the share of the healthy rate that the median lacks; ``low_share``: of measurements that were low."""

    kind: Literal["steady", "flapping", "sound"]
    loss: float
    low_share: float


def judge_beside_controls(own: Bouts, own_shared_M: Mask, others: Bouts, others_shared_M: Mask) -> Finding:
    """Second pass, of one port or path on one rail, beside known-good ones in the same minutes.

    Both are held against the same line: 7 % below the median of the controls, or lower where their pairs differ by
    more. Whether what falls below it is a fault or a bad minute, the controls tell: where rounds may come as they are
    to anybody, a suspect has so many of the bad ones once in a thousand times (R. A. Fisher's exact test, 1935).

    A measurement that failed is as slow as can be. ``shared_M``: see :func:`shared_lows`; no link flaps like that.
    """
    own_M, others_M = _logs(own), _logs(others)
    if not len(own_M) or not len(others_M):
        return Finding("sound", 0.0, 0.0)
    centre = float(np.median(others_M))
    slow = centre - max(-LOW, ROBUST_Z / 0.6745 * _spread_of_pairs(others, others_M))
    low = min(slow, float(np.quantile(others_M, CONTROL_QUANTILE)))
    own_K, others_K = _rounds(own), _rounds(others)
    loss = 1 - float(np.median(np.nan_to_num(own.rate_M)) / np.exp(centre))

    own_R = grouped_median(own_K, own_M, own_K.max() + 1)
    others_R = grouped_median(others_K, others_M, others_K.max() + 1)
    # A slow round tells little where those of controls are often slow: then it takes a loss beyond their scatter.
    slower = any(more_often(own_R < line, others_R < line) for line in (slow, low))
    if (own_M < slow).mean() >= STEADY_SHARE and slower:
        return Finding("steady", loss, float((own_M < slow).mean()))

    low_own = np.bincount(own_K, weights=(own_M < low) & ~own_shared_M) >= LEAST_LOW_IN_ROUND
    low_others = np.bincount(others_K, weights=(others_M < low) & ~others_shared_M) >= LEAST_LOW_IN_ROUND
    if low_own.mean() >= FLAPPING_SHARE and more_often(low_own, low_others):
        return Finding("flapping", loss, float((own_M < low).mean()))
    return Finding("sound", loss, 0.0)


def _rounds(bouts: Bouts) -> Ints:
    """key_M: the bout of one pair in one round, counted from 0."""
    return _numbered(bouts.turn_M, bouts.a_M, bouts.b_M)


def _numbered(*names: Ints) -> Ints:
    """key_M: equal where all of ``names`` are equal, counted from 0."""
    joined_M = np.zeros_like(names[0])
    for name_M in names:
        joined_M = joined_M * (int(name_M.max(initial=0)) + 1) + name_M
    key_M: Ints = np.unique(joined_M, return_inverse=True)[1]
    return key_M


def _spread_of_pairs(bouts: Bouts, log_M: Floats) -> float:
    """Median distance of the pairs' medians from their own median: how much sound pairs differ by where they are."""
    pair_M = _numbered(bouts.a_M, bouts.b_M)
    median_P = grouped_median(pair_M, log_M, pair_M.max() + 1)
    return float(np.median(np.abs(median_P - np.median(median_P))))


def more_often(own_R: Mask, others_R: Mask) -> bool:
    """Whether so many of our rounds are bad by chance less than once in a thousand times, if all are drawn from one
    bag: the tail of the hypergeometric distribution."""
    rounds, total, bad = len(own_R), len(own_R) + len(others_R), int(own_R.sum() + others_R.sum())
    as_bad = range(int(own_R.sum()), min(rounds, bad) + 1)
    return sum(comb(bad, k) * comb(total - bad, rounds - k) for k in as_bad) < CHANCE * comb(total, rounds)
