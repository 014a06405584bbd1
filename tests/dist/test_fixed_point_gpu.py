"""The kernel that sums gradients in fixed point, against the same in plain torch."""

import pytest
import torch

from seatrial.dist.fixed_point import add_fixed, largest_gradient

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


@pytest.mark.parametrize("count", [1, 2048, 3_000_017])
def test_the_kernel_gives_the_bits_of_plain_torch(count: int) -> None:
    drawn = torch.Generator().manual_seed(0)
    kernel_sum = plain_sum = None
    kernel_refused = torch.zeros((), dtype=torch.int32, device="cuda")
    plain_refused = torch.zeros((), dtype=torch.int32)
    limit = largest_gradient(3)
    for pack in range(3):
        magnitudes = 10.0 ** torch.randint(-13, 5, (count,), generator=drawn)
        flat = torch.randn(count, generator=drawn) * magnitudes
        if pack == 2 and count > 1:
            flat[:3] = torch.tensor([float("nan"), float("-inf"), limit])
        kernel_sum = add_fixed(flat.cuda(), kernel_sum, kernel_refused, limit)
        plain_sum = add_fixed(flat, plain_sum, plain_refused, limit)
        assert torch.equal(kernel_sum.cpu(), plain_sum)
        assert bool(kernel_refused) == bool(plain_refused) == (pack == 2 and count > 1)
