"""The 4-bit base: bitsandbytes' numbers, rows that stand alone, and the gradients of the dequantised weight."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seatrial.errors import UsageError
from seatrial.model.fp8 import FP8_MAX, quantise_rows
from seatrial.model.lora import AdaptedLinear
from seatrial.model.nf4 import (
    BLOCK,
    block_largest,
    dequantise_nf4,
    nf4_code,
    nf4_row_scales,
    nf4_to_fp8,
    quantise_nf4,
)

CPU = torch.device("cpu")


def weight(outs: int, ins: int, seed: int = 0) -> torch.Tensor:
    """Gaussian, with rows of different widths as real layers have."""
    random = torch.Generator().manual_seed(seed)
    return torch.randn(outs, ins, generator=random) * (0.5 + torch.rand(outs, 1, generator=random))


def adapted(linear: torch.nn.Linear, kind: str) -> AdaptedLinear:
    layer = AdaptedLinear({"up": linear}, 4, 8.0, [torch.Generator().manual_seed(0)])
    torch.manual_seed(1)
    layer.b_OR.data.normal_(std=0.1)
    if kind == "nf4":
        layer.quantise(kind="nf4")
    return layer


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_weight_is_its_code_times_the_scale_of_its_block(dtype: torch.dtype) -> None:
    stored = quantise_nf4(weight(6, 448).to(dtype))
    packed_OH = stored[0].view(torch.uint8).int()
    codes = torch.stack([packed_OH >> 4, packed_OH & 15], dim=-1).view(6, 7, BLOCK)
    expected = nf4_code(CPU)[codes] * block_largest(stored).unsqueeze(-1)
    assert torch.equal(dequantise_nf4(stored, dtype), expected.view(6, 448).to(dtype))


def test_codes_are_those_of_bitsandbytes_and_so_nearly_are_the_scales() -> None:
    from bitsandbytes.functional import dequantize_4bit, quantize_4bit

    whole = weight(64, 512)
    theirs, state = quantize_4bit(whole, blocksize=BLOCK, quant_type="nf4", compress_statistics=True)
    ours = quantise_nf4(whole)
    assert torch.equal(ours[0].view(torch.uint8).flatten(), theirs.flatten())
    error = (dequantise_nf4(ours, torch.float32) - whole).abs().mean()
    assert error < 1.01 * (dequantize_4bit(theirs, state) - whole).abs().mean()


def test_the_error_on_a_gaussian_is_that_of_normal_float_4() -> None:
    """Mean absolute error of 0.0728 in blocks of 64, as in the tests of bitsandbytes (0.0965 with 4-bit floats)."""
    torch.manual_seed(0)
    whole = torch.randn(256, 4096)
    error = float((dequantise_nf4(quantise_nf4(whole), torch.float32) - whole).abs().mean())
    assert error == pytest.approx(0.0727, abs=0.0005)


def test_zeros_stay_zero() -> None:
    assert not dequantise_nf4(quantise_nf4(torch.zeros(3, 128)), torch.bfloat16).any()


@given(rows=st.integers(1, 9), blocks=st.sampled_from([1, 3, 64, 300]), cut=st.integers(0, 9))
def test_rows_quantised_alone_are_rows_of_the_whole(rows: int, blocks: int, cut: int) -> None:
    """300 blocks a row are more than one second-level block."""
    whole = weight(rows, blocks * BLOCK)
    together = quantise_nf4(whole)
    for part in (slice(0, cut), slice(cut, rows)):
        if len(whole[part]):
            alone = quantise_nf4(whole[part])
            assert all(
                torch.equal(a.view(torch.uint8), t[part].contiguous().view(torch.uint8))
                for a, t in zip(alone, together, strict=True)
            )


def test_size_is_as_published() -> None:
    """4 bits, 8 for 64 of them, and 64 for a row: 4.14 bits against 4.127 with scales shared by rows."""
    stored = quantise_nf4(weight(16, 4096))
    bits = 8 * sum(part.numel() * part.element_size() for part in stored) / (16 * 4096)
    assert bits == pytest.approx(4 + 8 / 64 + 64 / 4096)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_outputs_and_gradients_are_those_of_the_dequantised_weight(dtype: torch.dtype) -> None:
    linear = torch.nn.Linear(128, 96, bias=True, dtype=dtype)
    quantised = adapted(linear, "nf4")
    linear.weight.data = dequantise_nf4(quantised.stored(), dtype)
    dense = adapted(linear, "dense")
    torch.manual_seed(2)
    x = torch.randn(2, 7, 128, dtype=dtype)
    grad = torch.randn(2, 7, 96, dtype=dtype)
    results = []
    for layer in (quantised, dense):
        inputs = x.clone().requires_grad_()
        y = layer(inputs)
        y.backward(grad)
        results.append((y, inputs.grad, layer.a_GI.grad, layer.b_OR.grad))
    for ours, expected in zip(*results, strict=True):
        assert ours is not None and expected is not None
        assert torch.equal(ours, expected)


def test_a_width_that_is_no_multiple_of_a_block_is_refused() -> None:
    with pytest.raises(UsageError, match=r"input widths divisible by 64, this model has 48; choose fp8"):
        quantise_nf4(torch.randn(4, 48))


def test_the_float8_matrix_is_the_dequantised_one_quantised_by_rows() -> None:
    stored = quantise_nf4(weight(24, 448))
    matrix = dequantise_nf4(stored, torch.float32)
    scales_O = nf4_row_scales(stored)
    assert torch.equal(scales_O, matrix.abs().amax(1) / FP8_MAX)
    q_OI = nf4_to_fp8(stored, scales_O)
    expected, _ = quantise_rows(matrix)
    assert (q_OI.float() != expected.float()).float().mean() < 1e-3  # a quotient and a product with an inverse
    assert torch.equal(nf4_to_fp8(stored, scales_O, transposed=True), q_OI.t())


def test_float8_products_of_a_4_bit_base_are_those_of_a_float8_base() -> None:
    linear = torch.nn.Linear(128, 96, bias=False)
    small = adapted(linear, "dense")
    small.quantise(kind="nf4", fp8_products=True)
    linear.weight.data = dequantise_nf4(small.stored(), torch.float32)
    wide = adapted(linear, "dense")
    wide.quantise(kind="fp8")
    torch.manual_seed(2)
    x, grad = torch.randn(9, 128), torch.randn(9, 96)
    results = []
    for layer in (small, wide):
        inputs = x.clone().requires_grad_()
        y = layer(inputs)
        y.backward(grad)
        results.append((y, inputs.grad, layer.a_GI.grad, layer.b_OR.grad))
    for ours, expected in zip(*results, strict=True):
        assert ours is not None and expected is not None
        torch.testing.assert_close(ours, expected, rtol=2e-2, atol=2e-2)
