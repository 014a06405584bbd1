"""Collectives on GPUs: what is timed is the GPU's work. ``pytest -m gpu``."""

import time

import pytest
import torch

from seatrial.accept.checks import ranks

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


def test_what_the_processor_takes_to_launch_a_call_is_not_counted() -> None:
    """A launch that takes over 100 microseconds, of a kernel that takes 3."""
    values_N = torch.zeros(1024, device="cuda")

    def slow_launch() -> None:
        time.sleep(1e-4)
        values_N.add_(1.0)

    ranks._time_queued(slow_launch, 1, 1)
    found = ranks._time_queued(slow_launch, 5, 6)
    assert len(found) == 5
    assert all(0 < seconds < 5e-5 for seconds in found)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_collectives_over_all_gpus_are_exact_and_scale_with_their_size() -> None:
    asked: list[ranks.Step] = [
        ("all_reduce", 2**20),
        ("all_reduce", 2**28),
        ("all_to_all", 2**26),
        ("send_recv", 2**26),
    ]
    found, choice = ranks.run_on_ranks("nccl", torch.cuda.device_count(), asked, seconds=1.0)
    assert [step.wrong for step in found] == [0] * len(asked)
    small, large = (sorted(step.seconds)[len(step.seconds) // 2] for step in found[:2])
    assert 0 < small < large / 4
    assert choice.version
