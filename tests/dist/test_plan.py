"""The planner against measured peaks, and its choices."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.dist.plan import ATTENTION_BYTES, GIB, LOSS_CHUNK, Gpus, Job, Layout, Shape, choose, estimate
from seatrial.errors import ImpossibleConfiguration, UsageError
from seatrial.model.attention import MOST_WORKSPACE_BYTES
from seatrial.model.loss import CHUNK

LLAMA_8B = Shape(128256, 4096, 14336, 32, 4096, 1024, tied=False)
LLAMA_70B = Shape(128256, 8192, 28672, 80, 8192, 1024, tied=False)
H100 = int(79.1 * GIB)
WHOLE = Layout("replicate", 1, "none")
GATHERED = Layout("shard", 8, "none", gathered=True)


@pytest.mark.parametrize(
    ("base", "tokens", "fused", "measured_gib"),
    [("fp8", 8192, False, 53.5), ("fp8", 12288, False, 70.7), ("fp8", 12288, True, 60.2), ("plain", 12288, True, 60.0)],
)
def test_measured_peaks_of_an_h100(base: str, tokens: int, fused: bool, measured_gib: float) -> None:
    size = estimate(LLAMA_8B, Job(rank=64, pack_tokens=tokens, base=base, fused_mlp=fused), WHOLE, gpus=1)
    assert (size.total - size.context) / GIB == pytest.approx(measured_gib, rel=0.015)
    assert (size.weights + size.adapters) / GIB == pytest.approx(15.7, rel=0.01)


def test_the_measured_peak_of_a_70b_in_four_pieces() -> None:
    pieces = Layout("shard", 4, "none")
    size = estimate(LLAMA_70B, Job(rank=64, pack_tokens=4096, base="fp8", fused_mlp=True), pieces, gpus=4)
    assert (size.total - size.context) / GIB == pytest.approx(93.9, rel=0.015)


def test_the_loss_has_the_chunk_that_is_reckoned_with() -> None:
    assert LOSS_CHUNK == CHUNK


def test_attention_takes_no_more_workspace_than_is_reckoned_with() -> None:
    assert ATTENTION_BYTES == MOST_WORKSPACE_BYTES


def test_exact_sums_keep_adapters_whole_and_do_not_make_the_layout_hang_on_the_packs() -> None:
    exact = job(order_free=True, repeatable=True)
    pieces = Layout("shard", 8, "none", whole_blocks=32)
    whole = estimate(LLAMA_8B, exact, WHOLE, gpus=8)
    sharded = estimate(LLAMA_8B, exact, pieces, gpus=8)
    assert (sharded.adapters, sharded.moments) == (whole.adapters, whole.moments)
    assert sharded.weights == pytest.approx(estimate(LLAMA_8B, job(), pieces, gpus=8).weights)
    assert (
        whole.gradients
        == 2 * whole.adapters
        == estimate(LLAMA_8B, replace(exact, packs_per_gpu=4), WHOLE, gpus=8).gradients
    )


def test_a_config_becomes_a_shape() -> None:
    config = {
        "vocab_size": 128256,
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    }
    assert Shape.of(config) == LLAMA_8B
    assert Shape.of({**config, "head_dim": 64, "tie_word_embeddings": True}).query == 2048
    del config["intermediate_size"], config["num_attention_heads"]
    with pytest.raises(UsageError, match=r"config.json has no intermediate_size, num_attention_heads"):
        Shape.of(config)


def job(**values: int | str) -> Job:
    return replace(Job(rank=64, pack_tokens=8192, base="fp8"), **values)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "job", "gpus", "layout"),
    [
        (LLAMA_8B, job(), Gpus(1, 1, H100), WHOLE),
        (LLAMA_8B, job(), Gpus(16, 8, H100), WHOLE),
        (LLAMA_8B, job(pack_tokens=16384), Gpus(1, 1, H100), Layout("replicate", 1, "selective")),
        (LLAMA_8B, job(pack_tokens=32768), Gpus(1, 1, H100), Layout("replicate", 1, "full")),
        (LLAMA_70B, job(), Gpus(8, 8, H100), Layout("shard", 8, "full")),
        (LLAMA_70B, job(), Gpus(16, 8, H100), Layout("hybrid", 8, "full")),
        (LLAMA_70B, job(), Gpus(8, 8, 140 * GIB), Layout("shard", 8, "selective")),
        (LLAMA_8B, job(rank=0), Gpus(8, 8, H100), Layout("shard", 8, "none")),
        (LLAMA_8B, job(rank=0), Gpus(8, 8, 140 * GIB), GATHERED),
        (LLAMA_8B, job(rank=0, pack_tokens=16384), Gpus(8, 8, 140 * GIB), Layout("shard", 8, "none")),
        (LLAMA_8B, job(), Gpus(2, 2, 0), WHOLE),
    ],
)
def test_the_fastest_that_fits_is_chosen(shape: Shape, job: Job, gpus: Gpus, layout: Layout) -> None:
    choice = choose(shape, job, gpus)
    assert replace(choice.layout, whole_blocks=0) == layout
    assert gpus.memory_bytes == 0 or choice.estimate.total < gpus.memory_bytes


@pytest.mark.parametrize(("base", "bytes_each"), [("plain", 4), ("fp8", 6)])
def test_gathered_weights_take_sums_of_gradients_and_float8_copies(base: str, bytes_each: int) -> None:
    whole = replace(GATHERED, whole_blocks=32)
    sizes = [
        estimate(LLAMA_8B, job(rank=0, base=base), replace(whole, gathered=gathered), gpus=8).gathered
        for gathered in (True, False)
    ]
    assert sizes[0] - sizes[1] == pytest.approx(8.03e9 * bytes_each, rel=0.1)  # embedding and head are not quantised


def test_only_full_training_gathers_and_says_so() -> None:
    for plan in ("replicate", "shard", "hybrid"):
        given = {"plan": plan, "checkpointing": "selective"}
        assert not choose(LLAMA_8B, job(), Gpus(8, 4, 0), **given).layout.gathered  # type: ignore[arg-type]
        assert choose(LLAMA_8B, job(rank=0), Gpus(8, 4, 0), **given).layout.gathered  # type: ignore[arg-type]
    why = choose(LLAMA_8B, job(rank=0, pack_tokens=16384), Gpus(8, 8, 140 * GIB)).why
    assert re.search(r"shard over 8, activation checkpointing none, weights gathered once a step would take \d+", why)


@pytest.mark.parametrize(
    ("shape", "gpus"), [(LLAMA_70B, Gpus(4, 4, 140 * GIB)), (LLAMA_70B, Gpus(8, 8, H100)), (LLAMA_8B, Gpus(8, 8, H100))]
)
def test_as_many_blocks_stay_whole_as_there_is_room_for(shape: Shape, gpus: Gpus) -> None:
    small = job(pack_tokens=4096)
    choice = choose(shape, small, gpus, plan="shard")
    kept = choice.layout.whole_blocks
    assert choice.estimate == estimate(shape, small, choice.layout, gpus=gpus.count)
    assert choice.estimate.total <= 0.9 * gpus.memory_bytes
    assert 0 < kept <= shape.blocks
    if kept < shape.blocks:
        more = estimate(shape, small, replace(choice.layout, whole_blocks=kept + 1), gpus=gpus.count)
        assert more.total > 0.9 * gpus.memory_bytes


def test_what_is_given_is_kept_to() -> None:
    gpus = Gpus(16, 8, H100)
    assert choose(LLAMA_8B, job(), gpus, plan="hybrid").layout.shard_size == 8
    assert choose(LLAMA_8B, job(), gpus, plan="hybrid", shard_size=4).layout.shard_size == 4
    small = choose(LLAMA_8B, job(), gpus, plan="shard", checkpointing="full").layout
    assert small == Layout("shard", 16, "full", whole_blocks=32)
    asked = choose(LLAMA_70B, job(), gpus, plan="replicate", checkpointing="none")
    assert asked.layout == WHOLE
    assert "should not fit" in asked.why
    with pytest.raises(UsageError, match="5 GPUs cannot share a copy, 16 is no multiple of it"):
        choose(LLAMA_8B, job(), gpus, plan="hybrid", shard_size=5)
    with pytest.raises(UsageError, match=r"goes with parallel.plan hybrid or auto, not with shard"):
        choose(LLAMA_8B, job(), gpus, plan="shard", shard_size=4)


def test_the_impossible_names_what_would_fit() -> None:
    with pytest.raises(ImpossibleConfiguration) as refused:
        choose(LLAMA_70B, job(base="plain"), Gpus(1, 1, H100))
    said = str(refused.value)
    assert re.search(r"does not fit 1 x 79 GiB: at the least \(replicate, activation checkpointing full\)", said)
    assert "model.base nf4" in said
    count = int(re.search(r"(\d+) GPUs of this size", said)[1])  # type: ignore[index]
    assert choose(LLAMA_70B, job(base="plain"), Gpus(count, 8, H100)).layout.plan == "shard"
    assert choose(LLAMA_70B, job(base="nf4"), Gpus(1, 1, H100)).layout.plan == "replicate"
    with pytest.raises(ImpossibleConfiguration, match=r"data.length (\d+)") as too_long:
        choose(LLAMA_8B, job(pack_tokens=1 << 20), Gpus(1, 1, H100))
    shorter = int(re.search(r"data.length (\d+)", str(too_long.value))[1])  # type: ignore[index]
    choose(LLAMA_8B, job(pack_tokens=shorter), Gpus(1, 1, H100))
    with pytest.raises(ImpossibleConfiguration):
        choose(LLAMA_8B, job(pack_tokens=2 * shorter), Gpus(1, 1, H100))


plans = st.sampled_from(["replicate", "shard", "hybrid"])
layouts = st.builds(
    Layout,
    plans,
    st.sampled_from([2, 4, 8]),
    st.sampled_from(["none", "selective", "full"]),
    st.booleans(),
    st.booleans(),
)
jobs = st.builds(
    Job,
    rank=st.sampled_from([0, 8, 64]),
    pack_tokens=st.integers(1, 1 << 17),
    base=st.sampled_from(["plain", "fp8", "nf4"]),
    packs_per_gpu=st.integers(1, 3),
)


@given(jobs, layouts)
def test_more_is_never_less(job: Job, layout: Layout) -> None:
    size = estimate(LLAMA_8B, job, layout, gpus=8).total
    assert size <= estimate(LLAMA_8B, replace(job, pack_tokens=2 * job.pack_tokens), layout, gpus=8).total
    assert size < estimate(LLAMA_70B, job, layout, gpus=8).total
    if job.rank:
        assert size <= estimate(LLAMA_8B, replace(job, rank=2 * job.rank), layout, gpus=8).total
    if layout.plan != "replicate":
        assert estimate(LLAMA_8B, job, replace(layout, shard_size=2 * layout.shard_size), gpus=16).total <= size
