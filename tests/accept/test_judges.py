"""No judge passes what was not measured, and every judge passes a healthy machine."""

import math
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seatrial.accept.catalogue import LADDER, find
from seatrial.accept.check import judge_recorded
from seatrial.accept.limits import Limits
from seatrial.records import JsonObject, Verdict

from .healthy import HEALTHY

Path = tuple[str | int, ...]


def test_every_check_of_the_ladder_has_a_healthy_example() -> None:
    assert list(HEALTHY) == [check.name for check in LADDER]


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_machine_passes(name: str) -> None:
    judgement = judge_recorded(find(name), HEALTHY[name].model_dump(mode="json"), Limits())
    assert judgement.verdict is Verdict.PASS, judgement.reason


def paths(value: Any, at: Path = ()) -> Iterator[Path]:
    """Every place in nested JSON."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        yield (*at, key)
        yield from paths(inner, (*at, key))


def changed(value: Any, path: Path, change: Any) -> Any:
    """A copy of ``value`` in which ``change(container, key)`` was applied to the place at ``path``."""
    copy: Any = dict(value) if isinstance(value, dict) else list(value)
    if len(path) == 1:
        change(copy, path[0])
    else:
        copy[path[0]] = changed(copy[path[0]], path[1:], change)
    return copy


def at(value: Any, path: Path) -> Any:
    for key in path:
        value = value[key]
    return value


@st.composite
def holes(draw: st.DrawFn) -> tuple[str, JsonObject, str]:
    """Healthy facts with one thing missing: a key removed, all samples gone, or a number that is none."""
    name = draw(st.sampled_from(sorted(HEALTHY)))
    facts = HEALTHY[name].model_dump(mode="json")
    kind = draw(st.sampled_from(["remove", "empty", "nan"]))
    places = list(paths(facts))
    if kind == "remove":
        named = [path for path in places if isinstance(path[-1], str) and path[-1].islower()]
        path = draw(st.sampled_from(named))
        return name, changed(facts, path, lambda box, key: box.pop(key)), f"{path} removed"
    if kind == "empty":
        lists = [p for p in places if isinstance(at(facts, p), list) and at(facts, p) and _is_judged_list(name, p)]
        if not lists:
            return name, {}, "everything removed"
        path = draw(st.sampled_from(lists))
        return name, changed(facts, path, lambda box, key: box.__setitem__(key, [])), f"{path} emptied"
    numbers = [p for p in places if type(at(facts, p)) is float]
    if not numbers:
        return name, {}, "everything removed"
    path = draw(st.sampled_from(numbers))
    bad = draw(st.sampled_from([math.nan, math.inf, -math.inf]))
    return name, changed(facts, path, lambda box, key: box.__setitem__(key, bad)), f"{path} = {bad}"


def _is_judged_list(name: str, path: Path) -> bool:
    shown = {"sm_clock_mhz", "power_w", "temperature_c", "transports", "bf16_gflop_per_s", "adapters"}
    unused = {"gpu.pcie": {"clock_reasons"}, "gpu.gemm_bf16": {"pcie_generation", "pcie_width"}}
    unused["gpu.gemm_fp8"] = unused["gpu.gemm_bf16"]
    return path[-1] not in shown | unused.get(name, set())


@settings(max_examples=400, deadline=None)
@given(holes())
def test_no_judge_passes_what_was_not_measured(hole: tuple[str, JsonObject, str]) -> None:
    name, facts, what = hole
    judgement = judge_recorded(find(name), facts, Limits())
    assert judgement.verdict is not Verdict.PASS, f"{name}: {what}: {judgement.reason}"
    assert judgement.reason
