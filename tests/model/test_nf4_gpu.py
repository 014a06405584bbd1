"""On a GPU: our kernels against bitsandbytes' own, to the bit, and moments in unified memory."""

import pytest
import torch

from seatrial.model.nf4 import block_largest, dequantise_nf4, nf4_row_scales, nf4_to_fp8, quantise_nf4
from seatrial.train.adamw8bit import BLOCK, PAGED_FROM, AdamW8bit

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU"),
]
SHAPES = [(48, 64), (1000, 448), (4096, 4096), (24, 64 * 300)]


def stored(outs: int, ins: int) -> list[torch.Tensor]:
    torch.manual_seed(outs)
    return quantise_nf4(torch.randn(outs, ins, device="cuda") * torch.rand(outs, 1, device="cuda"))


@pytest.mark.parametrize(("outs", "ins"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_dequantised_as_bitsandbytes_does(outs: int, ins: int, dtype: torch.dtype) -> None:
    weight = stored(outs, ins)
    largest = block_largest(weight).flatten()
    theirs = torch.ops.bitsandbytes.dequantize_4bit(weight[0].view(torch.uint8), largest, 64, "nf4", (outs, ins), dtype)
    assert torch.equal(dequantise_nf4(weight, dtype), theirs)


@pytest.mark.parametrize(("outs", "ins"), SHAPES)
def test_float8_of_every_number_is_that_of_the_formula(outs: int, ins: int) -> None:
    weight = stored(outs, ins)
    scales_O = nf4_row_scales(weight)
    expected = (dequantise_nf4(weight, torch.float32) * (1 / scales_O).unsqueeze(1)).to(torch.float8_e4m3fn)
    assert torch.equal(nf4_to_fp8(weight, scales_O).float(), expected.float())
    assert torch.equal(nf4_to_fp8(weight, scales_O, transposed=True).float(), expected.float().t())


def test_paged_moments_compute_what_others_do() -> None:
    """As on a CPU, but for fast division and codes that lie on the border of two."""
    torch.manual_seed(0)
    start = torch.randn(2 * PAGED_FROM // 100, 100)
    gradients = [torch.randn_like(start) for _ in range(5)]
    ends = []
    for device in ("cuda", "cpu"):
        parameter = torch.nn.Parameter(start.to(device, copy=True))
        optimizer = AdamW8bit([parameter], lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.0)
        for gradient in gradients:
            parameter.grad = gradient.to(device)
            optimizer.step()
        ends.append(parameter.detach().cpu())
    difference = (ends[0] - ends[1]).flatten()
    share = float(difference.norm() / (ends[1] - start).norm())
    at = int(difference.abs().argmax())
    assert share < 0.01, (
        f"{share:.3%} of the way; most at number {at} of {len(difference)} (block {at // BLOCK}): from "
        f"{start.flatten()[at]:.6f} to {ends[0].flatten()[at]:.6f} on the GPU, {ends[1].flatten()[at]:.6f} on the CPU, "
        f"gradients {[round(float(g.flatten()[at]), 4) for g in gradients]}; {int((difference.abs() > 1e-3).sum())} "
        "numbers differ by more than a tenth of the learning rate"
    )
