"""The self-test's faults of GPUs, on GPUs: ``pytest -m gpu``."""

from pathlib import Path

import pytest
import torch

from seatrial.accept.selftest import gpu_faults
from seatrial.accept.selftest.injected import PROCESS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]


def test_a_busy_gpu_is_named_and_its_neighbours_are_not(tmp_path: Path) -> None:
    found = gpu_faults.busy_gpu(tmp_path)
    assert (found.how, found.caught, found.blamed_right) == (PROCESS, True, True), found


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs that NVLink joins")
def test_nccl_on_sockets_is_noticed(tmp_path: Path) -> None:
    found = gpu_faults.forced_sockets(tmp_path)
    assert (found.how, found.caught, found.blamed_right) == (PROCESS, True, True), found
