"""The chunked loss is the cross-entropy of the whole, with its gradients."""

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.utils import counters

from seatrial.data.pack import IGNORED
from seatrial.model import loss as module
from seatrial.model.loss import QuantisedHead, quantise_head, summed_cross_entropy


@pytest.mark.parametrize("positions", [0, 1, 7, 24])
@pytest.mark.parametrize("trained_head", [True, False])
def test_chunks_add_up_to_the_whole(positions: int, trained_head: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK", 8)
    monkeypatch.setattr(module, "CHUNK_OF_A_TRAINED_HEAD", 16)
    torch.manual_seed(0)
    hidden, head = torch.randn(positions, 12, requires_grad=True), torch.randn(30, 12, requires_grad=trained_head)
    targets = torch.randint(30, (positions,))
    targets[1::5] = IGNORED
    expected = F.cross_entropy(hidden @ head.t(), targets, reduction="sum", ignore_index=IGNORED)
    found = summed_cross_entropy(hidden, head, targets)
    torch.testing.assert_close(found, expected)
    inputs = (hidden, head) if trained_head else (hidden,)
    for gradient, right in zip(
        torch.autograd.grad(found / 3, inputs), torch.autograd.grad(expected / 3, inputs), strict=True
    ):
        torch.testing.assert_close(gradient, right)


def test_the_last_chunk_of_a_trained_head_shares_the_code_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CHUNK_OF_A_TRAINED_HEAD", 64)
    monkeypatch.setattr(module, "_losses_and_gradient", torch.compile(module._losses_and_gradient, dynamic=False))
    torch._dynamo.reset()
    counters.clear()
    graphs = []
    for positions in (64, 16, 48, 128 + 32):
        hidden, head = torch.randn(positions, 12), torch.randn(30, 12, requires_grad=True)
        summed_cross_entropy(hidden, head, torch.randint(30, (positions,)))
        graphs.append(counters["stats"]["unique_graphs"])
    assert graphs == [1] * 4


def test_a_narrow_head_gets_a_gradient_of_its_own_type() -> None:
    torch.manual_seed(0)
    hidden, head = (torch.randn(n, 16).bfloat16().requires_grad_() for n in (40, 64))
    targets = torch.randint(64, (40,))
    loss = summed_cross_entropy(hidden, head, targets)
    loss.backward()
    wide = [tensor.detach().float().requires_grad_() for tensor in (hidden, head)]
    F.cross_entropy(wide[0] @ wide[1].t(), targets, reduction="sum").backward()
    for narrow, right in zip((hidden, head), wide, strict=True):
        assert narrow.grad is not None and right.grad is not None
        assert narrow.grad.dtype == torch.bfloat16
        assert (narrow.grad.float() - right.grad).norm() < 0.02 * right.grad.norm()


def quantised(head: torch.Tensor) -> QuantisedHead:
    found = quantise_head(head)
    assert found is not None
    return found


@pytest.mark.parametrize("sureness", [1.0, 16.0])
def test_a_gradient_in_float8_is_that_of_the_head_within_its_rounding(
    sureness: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CHUNK", 8)
    torch.manual_seed(0)
    head = torch.randn(512, 32)
    targets = torch.randint(512, (24,))
    # The surer the model is, the closer softmax is to one at the target: what is left must not be lost in rounding.
    hidden = (sureness * head[targets] / 32 + 0.3 * torch.randn(24, 32)).requires_grad_()
    targets[1::5] = IGNORED
    expected = F.cross_entropy(hidden.double() @ head.double().t(), targets, reduction="sum", ignore_index=IGNORED)
    found = summed_cross_entropy(hidden, head, targets, quantised(head))
    torch.testing.assert_close(found, expected.float(), rtol=1e-5, atol=1e-5)
    (right,), (gradient,) = torch.autograd.grad(expected, hidden), torch.autograd.grad(found / 3, hidden)
    wrong = (3 * gradient - right).norm(dim=1)
    assert (wrong[targets != IGNORED] < 0.05 * right.norm(dim=1)[targets != IGNORED]).all()
    assert not wrong[targets == IGNORED].any()


def test_a_pack_of_padding_has_no_gradient_in_float8() -> None:
    hidden, head = torch.randn(0, 32, requires_grad=True), torch.randn(64, 32)
    loss = summed_cross_entropy(hidden, head, torch.zeros(0, dtype=torch.int64), quantised(head))
    loss.backward()
    assert loss == 0


def test_a_head_of_a_shape_that_float8_units_do_not_multiply_is_left() -> None:
    assert quantise_head(torch.randn(100, 32)) is None
