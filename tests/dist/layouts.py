"""Every layout gives the gradients of one process that holds everything.

python -m tests.dist.layouts: four processes, forked from one that has imported everything.
"""

import itertools
import os
import socket
from functools import cache, partial

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from seatrial.data.pack import IGNORED, Pack
from seatrial.dist.parallel import GradientSum, clip_gradients, process_mesh, shard, whole
from seatrial.dist.world import World, joined_world
from seatrial.model.attention import PACKED_ATTENTION
from seatrial.model.lora import apply_lora, quantise_base
from seatrial.model.packed import PackLoss, checkpoint_activations, pack_input
from tests.worlds import _forked, _together

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
PACKS_PER_RANK = 2
SIZE = 4
BLOCKS = 3


def small_model(*, base: str, tied: bool) -> PreTrainedModel:
    """``base`` trained: no adapters, every parameter is trained."""
    torch.manual_seed(0)
    # 35 rows and 46 columns divide by neither 2 nor 4: pieces are padded.
    config = LlamaConfig(
        vocab_size=131,
        hidden_size=36,
        intermediate_size=46,
        num_hidden_layers=BLOCKS,
        num_attention_heads=3,
        num_key_value_heads=3,
        tie_word_embeddings=tied,
    )
    model = LlamaForCausalLM._from_config(config, attn_implementation=PACKED_ATTENTION)
    assert isinstance(model, PreTrainedModel)
    model.train()
    if base != "trained":
        apply_lora(model, targets=TARGETS, rank=4, alpha=8, seed=0)
        for name, parameter in model.named_parameters():
            if name.endswith("b_OR"):
                torch.nn.init.normal_(parameter, std=0.1)
        if base != "plain":
            quantise_base(model, transposed=False)
        model.enable_input_require_grads()
    return model


def pack_of(number: int) -> Pack:
    """Every seventh is a pack of padding: no position is trained."""
    drawn = torch.Generator().manual_seed(number)
    ids_T = torch.randint(0, 131, (30,), generator=drawn)
    targets_T = ids_T.roll(-1) if number % 7 != 1 else torch.full((30,), IGNORED)
    positions_T = torch.cat([torch.arange(12), torch.arange(18)])
    return Pack(ids_T, targets_T, positions_T, torch.tensor([0, 12, 30], dtype=torch.int32), 18, 30, 30)


def gradients(
    packed: PackLoss, packs: list[int], summing: GradientSum | None = None, *, steps: int = 2
) -> dict[str, Tensor]:
    """Of the last of equal steps in a row: state left over from those before would show."""
    trained = {name: p for name, p in packed.model.named_parameters() if p.requires_grad}
    found: dict[str, Tensor] = {}
    for _ in range(steps):
        packed.zero_grad()
        for number in packs:
            if summing is not None:
                summing.before_backward(last=number == packs[-1])
            packed(pack_input(pack_of(number), torch.device("cpu"))).backward()
        if summing is not None:
            summing.wait()
        found = {}
        for name, parameter in trained.items():
            assert parameter.grad is not None, name
            found[name] = whole(parameter.grad).clone()
    return found


@cache
def gradients_of_one_process(base: str, *, tied: bool) -> dict[str, Tensor]:
    return gradients(PackLoss(small_model(base=base, tied=tied)), list(range(SIZE * PACKS_PER_RANK)), steps=1)


def compare(world: World, base: str, plan: str, *, tied: bool, recompute: bool, whole_blocks: int) -> None:
    model = small_model(base=base, tied=tied)
    everything = list(range(world.size * PACKS_PER_RANK))
    expected = gradients_of_one_process(base, tied=tied)
    packed = PackLoss(model)
    if plan != "replicate":
        size = world.size if plan == "shard" else world.size // 2
        shard(packed, process_mesh(world.size, size, "cpu"), whole_blocks=whole_blocks)
        pieces = {name: p for name, p in model.named_parameters() if isinstance(p, DTensor)}
        assert len(pieces) == len(list(model.named_parameters()))
        assert (base == "fp8") == any(piece.to_local().dtype == torch.float8_e4m3fn for piece in pieces.values())
    if recompute:
        checkpoint_activations(model, "full")
    parameters = [p for p in model.parameters() if p.requires_grad]
    found = gradients(packed, everything[world.rank :: world.size], GradientSum(packed, parameters))
    named = f"{base} {plan} tied={tied} recompute={recompute} whole_blocks={whole_blocks}"
    assert found.keys() == expected.keys(), named
    for name, gradient in found.items():
        furthest = float((gradient - expected[name]).abs().max() / expected[name].abs().max().clamp(min=1e-6))
        assert furthest < 1e-4, f"{named}, {name}: {furthest} from the gradient of one process"
    norm = float(clip_gradients(parameters, 1e9))
    wanted = float(torch.stack([g.norm() for g in expected.values()]).norm())
    assert abs(norm - wanted) < 1e-4 * wanted, named


def live(port: int, rank: int) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(SIZE)}
    with joined_world(timeout_seconds=60) as world:
        plans = ("replicate", "shard", "hybrid")
        for base, plan in itertools.product(("plain", "fp8", "trained"), plans):
            compare(world, base, plan, tied=False, recompute=False, whole_blocks=0)
            if base == "trained" or plan == "shard":
                compare(world, base, plan, tied=True, recompute=False, whole_blocks=0)
        for base in ("fp8", "trained"):
            compare(world, base, "hybrid", tied=False, recompute=True, whole_blocks=0)
            for whole_blocks in (1, BLOCKS):
                compare(world, base, "shard", tied=False, recompute=False, whole_blocks=whole_blocks)
        dist.barrier()


def main() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    codes = _together([_forked(partial(live, port), rank) for rank in range(SIZE)])
    assert not any(codes), codes


if __name__ == "__main__":
    main()
