"""Float8 kernels cast as the plain code does, to the bit."""

import pytest
import torch

from seatrial.model.fp8 import FP8, has_fp8_units, quantise_joined, quantise_rows, transposed

CUDA = torch.device("cuda", 0)
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or not has_fp8_units(CUDA), reason="needs an NVIDIA GPU that multiplies float8"
    ),
]


@pytest.mark.parametrize("widths", [(32, 16), (512, 128, 128), (4096, 1024, 1024), (8192, 1024, 1024)])
def test_rows_of_a_joined_and_scaled_gradient(widths: tuple[int, ...]) -> None:
    width = sum(widths)
    generator = torch.Generator(CUDA).manual_seed(width)
    x_TW = torch.randn(300, width, device=CUDA, generator=generator).bfloat16()
    x_TW[7] = 0
    column_scales_W = torch.rand(width, device=CUDA, generator=generator)
    q_TW, scales_T1 = quantise_joined(x_TW.split(widths, 1), column_scales_W)
    right_TW, right_T1 = quantise_rows(x_TW * column_scales_W)
    assert torch.equal(scales_T1, right_T1)
    assert torch.equal(q_TW.float(), right_TW.float())


@pytest.mark.parametrize("shape", [(128, 256), (300, 48), (1024, 4096)])
def test_transposed_bytes(shape: tuple[int, int]) -> None:
    x_RC = torch.randn(shape, device=CUDA, generator=torch.Generator(CUDA).manual_seed(0)).to(FP8)
    assert torch.equal(transposed(x_RC).float(), x_RC.float().t())
