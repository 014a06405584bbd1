"""Every fault that can be drawn can happen: its rank exists, its moment comes, and its answer can be told."""

from collections import Counter
from typing import get_args

from hypothesis import given
from hypothesis import strategies as st

from seatrial.dist.heartbeat import PHASES
from seatrial.drill.catalogue import CATALOGUE, sweep
from seatrial.drill.fault import Act, Fault, On, Wound
from seatrial.drill.plan import SAVE_EVERY_STEPS, STEPS

WORLDS = st.lists(st.integers(1, 8), min_size=1, max_size=5, unique=True)


@given(seed=st.integers(0, 2**32), worlds=WORLDS, count=st.integers(1, 80))
def test_what_is_drawn_can_happen(seed: int, worlds: list[int], count: int) -> None:
    faults = sweep(count, seed=seed, worlds=worlds, steps=STEPS, kinds=CATALOGUE)
    assert len(faults) == count
    for fault in faults:
        assert Fault.model_validate_json(fault.model_dump_json()) == fault
        sizes = fault.worlds if len(fault.injections) > 1 and fault.restarts == 0 else fault.worlds[:1] * 9
        for number, injection in enumerate(fault.injections):
            assert injection.rank < sizes[number], fault
            assert injection.moment.phase in PHASES
            assert injection.moment.step < STEPS
            first = fault.injections[0].moment
            if injection.moment.phase == "restore":
                assert (first.phase, first.when) == ("save.collect", "after"), "there is something to restore"
        assert fault.nodes == 1 or fault.worlds[0] % fault.nodes == 0
        assert fault.wound is None or fault.restarts == 0  # the files are damaged between two starts


def test_the_same_seed_draws_the_same() -> None:
    one, other, third = (sweep(50, seed=seed, worlds=(1, 2, 3, 4), steps=STEPS, kinds=CATALOGUE) for seed in (0, 0, 1))
    assert one == other
    assert one != third


def test_every_kind_comes_once_before_any_comes_again() -> None:
    names = Counter(
        fault.name for fault in sweep(2 * len(CATALOGUE), seed=3, worlds=(2,), steps=STEPS, kinds=CATALOGUE)
    )
    assert set(names.values()) == {2}
    assert names.keys() == {kind.name for kind in CATALOGUE}


def test_the_catalogue_has_every_act_target_and_wound_and_every_part_of_a_save() -> None:
    assert {kind.act for kind in CATALOGUE} == set(get_args(Act))
    assert {kind.on for kind in CATALOGUE} == set(get_args(On))
    assert {kind.wound for kind in CATALOGUE} - {None} == set(get_args(Wound))
    killed = {moment for kind in CATALOGUE if kind.act == "SIGKILL" and kind.wound is None for moment in kind.moments}
    parts = ("save.stage", "save.write", "save.manifest", "save.commit", "save.collect")
    assert killed >= {(part, when) for part in parts for when in ("before", "during", "after")}
    assert {"restore", "export", "load", "data", "compile"} <= {phase for phase, _ in killed}


def test_a_damaged_checkpoint_is_never_the_only_one() -> None:
    for kind in CATALOGUE:
        if kind.wound not in (None, "bad row"):
            assert kind.first_step > SAVE_EVERY_STEPS
            assert kind.moments == (("save.collect", "after"),)
