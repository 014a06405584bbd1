"""Dropout by a counter: fair masks, exact gradients, and the same mask wherever a pack is computed."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import LlamaConfig, LlamaForCausalLM

from seatrial.model.dropout import DropoutMasks
from seatrial.model.lora import AdaptedLinear, adapted_layers, apply_lora
from seatrial.model.mask import dropped, kept

CPU = torch.device("cpu")
SHARE = 0.25


def key(seed: int) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randint(-(2**31), 2**31, (2,), generator=random).to(torch.int32)


def layer(dropout: float = SHARE) -> AdaptedLinear:
    """Query and key of one input, with an update that is not zero."""
    torch.manual_seed(0)
    plain = {name: torch.nn.Linear(20, size, bias=False).double() for name, size in (("q", 12), ("k", 8))}
    generators = [torch.Generator().manual_seed(seed) for seed in (1, 2)]
    made = AdaptedLinear(plain, 3, 6.0, generators, dropout)
    made.b_OR.data.normal_()
    made.mask_key = key(5)
    return made


@pytest.mark.parametrize("share", [0.05, 0.1, 0.5])
def test_masks_are_fair(share: float) -> None:
    """Shares of the whole, of each token, of each column and of each pair of neighbours, within 5 sigma."""
    tokens, width = 1000, 768
    mask = kept(key(0), tokens, width, share).double()
    sigma = (share * (1 - share)) ** 0.5
    assert abs(mask.mean() - (1 - share)) < 5 * sigma / (tokens * width) ** 0.5
    assert (mask.mean(0) - (1 - share)).abs().max() < 5 * sigma / tokens**0.5
    assert (mask.mean(1) - (1 - share)).abs().max() < 5 * sigma / width**0.5
    left = (mask - (1 - share)) / sigma
    other = (kept(key(1), tokens, width, share).double() - (1 - share)) / sigma
    for product in (left[1:] * left[:-1], left[:, 1:] * left[:, :-1], left * other):
        assert abs(product.mean()) < 5 / product.numel() ** 0.5


def test_the_rest_is_scaled_up_and_the_whole_is_kept_on_average() -> None:
    x = torch.ones(500, 200)
    out = dropped(x, key(3), SHARE)
    assert out.unique().tolist() == [0.0, pytest.approx(1 / (1 - SHARE))]
    assert float(out.mean()) == pytest.approx(1.0, abs=0.01)


def test_the_output_is_that_of_the_formula() -> None:
    """y = x W^T + (alpha / rank) drop(x) A^T B^T, as PEFT computes it; the frozen part sees all of x."""
    adapted = layer()
    x = torch.randn(7, 20, dtype=torch.float64)
    mask = kept(key(5), 7, 20, SHARE).double() / (1 - SHARE)
    expected = x @ adapted.weight_OI.t()
    update = [
        (x * mask) @ a.double().t() @ b.double().t() * 2.0 for _, a, b in adapted.halves(adapted.a_GI, adapted.b_OR)
    ]
    torch.testing.assert_close(adapted(x), expected + torch.cat(update, 1))


def test_gradients_are_differences_of_the_output() -> None:
    """The output is linear in each of x, A and B alone, so a central difference is exact but for rounding."""
    adapted = layer()
    torch.manual_seed(4)
    x = torch.randn(7, 20, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(7, 20, dtype=torch.float64)

    def value() -> Tensor:
        total: Tensor = (adapted(x) * weights).sum()
        return total

    value().backward()
    for tensor in (x, adapted.a_GI, adapted.b_OR):
        assert tensor.grad is not None
        direction = torch.randn_like(tensor)
        with torch.no_grad():
            ends = []
            for sign in (1, -1):
                tensor += 0.5 * sign * direction
                ends.append(value())
                tensor -= 0.5 * sign * direction
        torch.testing.assert_close((tensor.grad * direction).sum().double(), ends[0] - ends[1], rtol=1e-5, atol=1e-5)


def gradients(run: Callable[[Tensor], Tensor], adapted: AdaptedLinear) -> list[Tensor]:
    torch.manual_seed(6)
    x = torch.randn(9, 20, dtype=torch.float64, requires_grad=True)
    adapted.zero_grad()
    run(x).square().sum().backward()
    assert x.grad is not None and adapted.a_GI.grad is not None and adapted.b_OR.grad is not None
    return [x.grad, adapted.a_GI.grad, adapted.b_OR.grad]


def test_recomputed_activations_meet_the_same_mask() -> None:
    adapted = layer()
    again = gradients(lambda x: checkpoint(adapted, x, use_reentrant=False, preserve_rng_state=False), adapted)
    assert all(torch.equal(a, b) for a, b in zip(again, gradients(adapted, adapted), strict=True))


def test_one_compilation_serves_every_mask() -> None:
    adapted = layer()
    torch._dynamo.reset()
    compiled = torch.compile(adapted, fullgraph=True, backend="aot_eager")
    for seed in range(3):
        adapted.mask_key = key(seed)
        with torch._dynamo.config.patch(error_on_recompile=seed > 0):
            ours = gradients(compiled, adapted)
        for one, other in zip(ours, gradients(adapted, adapted), strict=True):
            torch.testing.assert_close(one, other)


def test_without_dropout_there_is_no_trace_of_it() -> None:
    """The same operations, whether or not a key is there."""
    from torch.fx.experimental.proxy_tensor import make_fx

    def operations(dropout: float, mask_key: Tensor | None) -> list[str]:
        adapted = layer(dropout)
        adapted.mask_key = mask_key
        graph = make_fx(adapted)(torch.randn(3, 20, dtype=torch.float64)).graph
        return [str(node.target) for node in graph.nodes]

    assert operations(0.0, key(0)) == operations(0.0, None)
    assert len(operations(SHARE, key(0))) > len(operations(0.0, None))


def test_masks_differ_by_layer_and_pack_and_by_nothing_else() -> None:
    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=2, num_attention_heads=2
    )
    seen: dict[int, list[tuple[int, ...]]] = {}
    for positions in ([0, 1, 2], [2, 0]):
        model = LlamaForCausalLM(config)
        apply_lora(model, targets=("q_proj", "v_proj", "down_proj"), rank=2, alpha=2.0, seed=0, dropout=SHARE)
        masks = DropoutMasks(model, seed=9, device=CPU)
        for position in positions:
            masks.draw(position)
            keys = [tuple(found.mask_key.tolist()) for _, found in adapted_layers(model) if found.mask_key is not None]
            assert seen.setdefault(position, keys) == keys
    every = [key for keys in seen.values() for key in keys]
    assert len(set(every)) == len(every) == 3 * 4
