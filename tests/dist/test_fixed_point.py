"""Gradients in fixed point: any order, one sum; nothing wraps."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seatrial.dist.fixed_point import LARGEST_SUM, SCALE, add_fixed, largest_gradient

# Of float32, within what a step of 8 packs can add up.
GRADIENTS = st.floats(-1e5, 1e5, width=32)


def total(packs: list[list[float]], limit: float = largest_gradient(8)) -> tuple[torch.Tensor, int]:
    refused = torch.zeros((), dtype=torch.int32)
    summed: torch.Tensor | None = None
    for pack in packs:
        summed = add_fixed(torch.tensor(pack), summed, refused, limit)
    assert summed is not None
    return summed, int(refused)


@given(st.lists(st.lists(GRADIENTS, min_size=3, max_size=3), min_size=1, max_size=8), st.randoms(use_true_random=False))
def test_the_order_of_packs_does_not_matter_and_the_sum_is_right(
    packs: list[list[float]], shuffling: random.Random
) -> None:
    summed, refused = total(packs)
    shuffled = list(packs)
    shuffling.shuffle(shuffled)
    again, _ = total(shuffled)
    assert torch.equal(summed, again)
    assert refused == 0
    # Rounded once a pack, by half a unit, and once more where float32 has no halves.
    exact = torch.tensor(packs, dtype=torch.float64).sum(0)
    largest = float(torch.tensor(packs, dtype=torch.float64).abs().max())
    assert float((summed.double() / SCALE - exact).abs().max()) <= len(packs) * (1 / SCALE + largest * 2.0**-23)


@pytest.mark.parametrize("broken", [float("nan"), float("inf"), -float("inf"), largest_gradient(8), -1e30])
def test_what_cannot_be_summed_is_refused_and_counts_as_zero(broken: float) -> None:
    summed, refused = total([[1.0, broken, 3.0], [1.0, 2.0, 3.0]])
    assert refused == 1
    assert (summed.double() / SCALE).tolist() == [2.0, 2.0, 6.0]


@pytest.mark.parametrize("packs", [1, 8, 1000, 100_000])
def test_the_largest_gradients_do_not_overflow(packs: int) -> None:
    limit = torch.tensor(largest_gradient(packs))
    nearly = torch.nextafter(limit, torch.zeros(()))
    summed, refused = add_fixed(nearly.reshape(1), None, torch.zeros((), dtype=torch.int32), float(limit)), 0
    assert refused == 0
    assert int(summed) * packs <= LARGEST_SUM


def test_half_a_unit_is_rounded_up_whatever_its_sign() -> None:
    unit = 1 / SCALE
    summed, _ = total([[0.5 * unit, -0.5 * unit, 0.49 * unit, -0.51 * unit, 1.5 * unit]])
    assert summed.tolist() == [1, 0, 0, -1, 2]
