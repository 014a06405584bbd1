"""A program that multiplies on one GPU, as a job that never left it does: ``python -m ...selftest.busy_gpu INDEX``.

It says so on standard output once it has begun, and ends by itself after LONGEST_SECONDS.
"""

import os
import sys
import time

from seatrial.accept.checks.gpu_compute import GEMM_SIZE

LONGEST_SECONDS = 120.0
AHEAD = 16
"""Products queued at a time: the GPU always has some, and a kill takes effect within 30 ms."""


def main() -> None:
    os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")  # as the worker counts them
    import torch

    end = time.monotonic() + LONGEST_SECONDS
    a = torch.randn(GEMM_SIZE, GEMM_SIZE, device=f"cuda:{sys.argv[1]}", dtype=torch.bfloat16)
    product = a @ a
    sys.stdout.write("busy\n")
    sys.stdout.flush()
    while time.monotonic() < end:
        for _ in range(AHEAD):
            torch.mm(a, a, out=product)
        torch.cuda.synchronize(a.device)


if __name__ == "__main__":
    main()
