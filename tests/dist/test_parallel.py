"""How a model lies over the processes changes no gradient."""

import subprocess
import sys

import torch
from torch import nn

from seatrial.dist.parallel import BUCKET_BYTES, buckets


def test_every_layout_gives_the_gradients_of_one_process() -> None:
    """Copies, pieces, and 2 x 2 pieces with copies; plain and float8 bases, and full training."""
    command = [sys.executable, "-m", "tests.dist.layouts"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr[-3000:]


def test_buckets_hold_every_parameter_once_in_order_and_are_of_one_type() -> None:
    parameters = [nn.Parameter(torch.empty(size, device="meta")) for size in (10, 10_000_000, 3_000_000, 20, 4_000_000)]
    parameters.insert(3, nn.Parameter(torch.empty(5, device="meta", dtype=torch.bfloat16)))
    split = buckets(parameters)
    assert [id(p) for bucket in split for p in bucket] == [id(p) for p in parameters]
    for bucket in split:
        assert len({p.dtype for p in bucket}) == 1
        assert len(bucket) == 1 or sum(p.numel() * p.element_size() for p in bucket) <= BUCKET_BYTES
    assert buckets([]) == []
