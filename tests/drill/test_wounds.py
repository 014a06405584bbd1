"""Damage changes what it says and nothing else."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.drill.wounds import HOLE_BYTES, damage, mend_row, wound
from seatrial.errors import SeatrialError
from seatrial.rundir import RunDir


@given(content=st.binary(min_size=3, max_size=5000))
def test_one_bit(content: bytes) -> None:
    changed = bytearray(content)
    damage(changed, "bit flip")
    assert len(changed) == len(content)
    assert sum((a ^ b).bit_count() for a, b in zip(content, changed, strict=True)) == 1


@given(content=st.binary(min_size=3 * HOLE_BYTES, max_size=8 * HOLE_BYTES).filter(any), hollow=st.booleans())
def test_a_hole_changes_something(content: bytes, hollow: bool) -> None:
    before = content[: len(content) // 2] + bytes(len(content) - len(content) // 2) if hollow else content
    changed = bytearray(before)
    try:
        damage(changed, "zero hole")
    except SeatrialError:
        assert not any(before[: len(before) * 2 // 3]) or hollow
        return
    assert len(changed) == len(before)
    assert bytes(changed) != before


def test_a_bad_row_is_named_and_can_be_mended(tmp_path: Path) -> None:
    rows = tmp_path / "records.jsonl"
    rows.write_bytes(b'{"a": 1}\n' * 5)
    assert wound("bad row", RunDir(tmp_path / "run"), tmp_path) == "records.jsonl:3"
    assert rows.read_bytes() != b'{"a": 1}\n' * 5
    mend_row(tmp_path)
    assert rows.read_bytes() == b'{"a": 1}\n' * 5


@pytest.mark.parametrize("kind", ["bit flip", "missing manifest"])
def test_nothing_to_damage(tmp_path: Path, kind: str) -> None:
    run = RunDir(tmp_path / "run")
    run.path.mkdir()
    run.settings.write_text("{}")
    assert wound(kind, run, tmp_path) == ""  # type: ignore[arg-type]
