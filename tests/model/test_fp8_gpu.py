"""Float8 kernels cast as the plain code does, to the bit."""

import pytest
import torch

from seatrial.model.cublaslt import adds_onto
from seatrial.model.fp8 import (
    FP8,
    fp8_product,
    fp8_product_onto,
    has_fp8_units,
    quantise_joined,
    quantise_rows,
    transposed,
)

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


@pytest.mark.parametrize("shape", [(300, 512, 256), (1, 64, 48), (8192, 4096, 1024)], ids=str)
@pytest.mark.parametrize("scaled", [True, False])
def test_a_product_onto_what_is_there(shape: tuple[int, int, int], scaled: bool) -> None:
    """Onto zeros it is torch's own, to the bit; onto numbers, into columns of a wider matrix, it adds to them."""
    if not adds_onto(CUDA):
        pytest.skip("needs a GPU of compute capability 9.0 and CUDA 12.9")
    tokens, summed, columns = shape
    generator = torch.Generator(CUDA).manual_seed(0)
    x_TK, x_scales = quantise_rows(torch.randn(tokens, summed, device=CUDA, generator=generator))
    y_NK, y_scales = quantise_rows(torch.randn(columns, summed, device=CUDA, generator=generator))
    scales_N = y_scales.squeeze(1) if scaled else None
    alone_TN = fp8_product(x_TK, x_scales, y_NK, scales_N, torch.bfloat16)
    zeros_TN = torch.zeros_like(alone_TN)
    assert torch.equal(fp8_product_onto(zeros_TN, x_TK, x_scales, y_NK, scales_N), alone_TN)

    wide = torch.randn(tokens, 3 * columns, device=CUDA, generator=generator).mul_(30).bfloat16()
    before = wide.float()
    part_TN = wide[:, columns : 2 * columns]
    fp8_product_onto(part_TN, x_TK, x_scales, y_NK, scales_N)
    product_TN = (x_TK.double() @ y_NK.double().t() * x_scales * (1 if scales_N is None else scales_N)).float()
    expected_TN = before[:, columns : 2 * columns] + product_TN
    assert float((part_TN.float() - expected_TN).norm() / expected_TN.norm()) < 2**-8
    rest = torch.cat([wide[:, :columns], wide[:, 2 * columns :]], 1).float()
    assert torch.equal(rest, torch.cat([before[:, :columns], before[:, 2 * columns :]], 1))


@pytest.mark.parametrize(
    "shape", [(300, 2, 2688, 64), (1, 1, 48, 16), (4096, 2, 14336, 64), (70, 2, 28672, 128)], ids=str
)
def test_rows_are_cast_and_multiplied_from_one_reading(shape: tuple[int, int, int, int]) -> None:
    from seatrial.model.fp8_kernels import cast_and_multiply

    tokens, parts, width, rank = shape
    generator = torch.Generator(CUDA).manual_seed(0)
    x_TPW = torch.randn(tokens, parts, width, device=CUDA, generator=generator).bfloat16()
    column_scales = torch.rand(parts * width, device=CUDA, generator=generator)
    right_PWR = torch.randn(parts, width, rank, device=CUDA, generator=generator).bfloat16()
    scaled = x_TPW.flatten(1).float() * column_scales
    q, scales_T1, products_TR = cast_and_multiply(x_TPW, scaled.abs().amax(1), column_scales, right_PWR)
    right_q, right_scales = quantise_rows(scaled)
    assert torch.equal(scales_T1, right_scales)
    assert torch.equal(q.float(), right_q.float())
    expected = torch.einsum("tpw,pwr->tpr", x_TPW.double(), right_PWR.double()).flatten(1).float()
    assert float((products_TR.float() - expected).norm() / expected.norm()) < 2**-8
