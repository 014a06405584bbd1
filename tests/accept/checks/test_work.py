"""The work that GPUs are given, run on the processor: it is right here, and it finds planted faults."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seatrial.accept.checks import cpu, gpu_compute, gpu_memory
from seatrial.accept.digest import ODD_MULTIPLIER, digest


def test_the_digest_of_the_same_bits_is_the_same_and_nan_is_just_bits() -> None:
    values = torch.tensor([1.5, float("nan"), -0.0, float("inf")])
    assert digest(values) == digest(values.clone())
    assert digest(torch.tensor([0.0])) != digest(torch.tensor([-0.0]))


@given(st.integers(0, 999), st.integers(0, 15))
def test_any_flipped_bit_changes_the_digest(element: int, bit: int) -> None:
    values = torch.arange(1000).bfloat16()
    flipped = values.clone()
    flipped.view(torch.int16)[element] ^= torch.tensor(1 << bit).to(torch.int16)
    assert digest(values) != digest(flipped)


def test_swapped_elements_change_the_digest() -> None:
    assert digest(torch.tensor([1.0, 2.0])) != digest(torch.tensor([2.0, 1.0]))


def test_the_multiplier_is_odd_as_the_digest_needs() -> None:
    assert ODD_MULTIPLIER % 2 == 1


def test_memory_that_holds_is_found_whole() -> None:
    tested, wrong = gpu_memory.wrong_words("cpu", 10 * 65536, block_bytes=65536)
    assert (tested, wrong) == (7 * 65536, 0)


def test_memory_that_forgets_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two addresses that reach one cell: the second block shares its memory with the first."""
    real = torch.empty
    made: list[torch.Tensor] = []

    def aliased(*size: int, **options: Any) -> torch.Tensor:
        made.append(made[0] if len(made) == 1 else real(*size, **options))
        return made[-1]

    monkeypatch.setattr(torch, "empty", aliased)
    _, wrong = gpu_memory.wrong_words("cpu", 6 * 8192, block_bytes=8192)
    assert wrong > 0


def test_seeded_work_repeats_and_depends_on_its_input() -> None:
    inputs = gpu_compute.seeded_inputs("cpu", 512)
    once = gpu_compute.seeded_work(*inputs)
    assert once == gpu_compute.seeded_work(*gpu_compute.seeded_inputs("cpu", 512))
    inputs[0].view(torch.int32)[300, 300] ^= 1 << 20
    assert once != gpu_compute.seeded_work(*inputs)


def test_bf16_products_are_exact_on_small_integers() -> None:
    generator = torch.Generator().manual_seed(11)
    a, b = (torch.randint(-1, 2, (512, 512), generator=generator).float() for _ in range(2))
    exact = (a.double() @ b.double().t()).bfloat16()
    assert torch.equal(gpu_compute.multiplier("bf16", a, b)(), exact)


def test_the_last_level_cache_is_counted_once_for_the_cores_that_share_it(tmp_path: Any) -> None:
    for core, shared in ((0, "0-1"), (1, "0-1"), (2, "2-3"), (3, "2-3")):
        for index, level, size, by in ((0, "1", "32K", str(core)), (3, "3", "16384K", shared)):
            cache = tmp_path / f"cpu{core}/cache/index{index}"
            cache.mkdir(parents=True)
            for name, text in (("level", level), ("size", size), ("shared_cpu_list", by)):
                (cache / name).write_text(text + "\n")
    assert cpu.last_level_cache_bytes(tmp_path) == 2 * 16384 * 1024
    assert cpu.last_level_cache_bytes(tmp_path / "nowhere") == 0
