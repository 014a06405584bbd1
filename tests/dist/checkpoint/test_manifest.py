"""A manifest is read as it was written, or not at all."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seatrial.dist.checkpoint.manifest import (
    Manifest,
    Piece,
    StoredFile,
    TensorKind,
    decode_manifest,
    encode_manifest,
    first_difference,
    newest_first,
    step_of,
)
from seatrial.errors import IntegrityError, UsageError

MANIFEST = Manifest(
    name="step-00000012",
    step=12,
    world_size=2,
    progress={"step": 12, "skipped": [[3, 4]]},
    identity={"data": "ab12"},
    fingerprint={},
    tensors={"weight/a": TensorKind("float32", (4, 3))},
    files={"rank-00000-0.safetensors": StoredFile(148, "0" * 64, (Piece("weight/a", (0, 0), (4, 3), 100),))},
)


def test_it_comes_back() -> None:
    assert decode_manifest(encode_manifest(MANIFEST), "here") == MANIFEST
    assert json.loads(encode_manifest(MANIFEST))["tensors"] == {"weight/a": ["float32", [4, 3]]}


@given(at=st.integers(0, len(encode_manifest(MANIFEST)) - 1), flip=st.integers(1, 255))
def test_no_flipped_byte_passes(at: int, flip: int) -> None:
    text = bytearray(encode_manifest(MANIFEST))
    text[at] ^= flip
    with pytest.raises(IntegrityError, match="torn, or damaged"):
        decode_manifest(bytes(text), "here")


@given(length=st.integers(0, len(encode_manifest(MANIFEST)) - 1))
def test_no_torn_one_passes(length: int) -> None:
    with pytest.raises(IntegrityError, match="torn, or damaged"):
        decode_manifest(encode_manifest(MANIFEST)[:length], "here")


def test_another_version_is_said_not_called_damage(monkeypatch: pytest.MonkeyPatch) -> None:
    text = encode_manifest(MANIFEST)
    monkeypatch.setattr("seatrial.dist.checkpoint.manifest.FORMAT", 2)
    with pytest.raises(UsageError, match=r"a checkpoint of format 1, .* reads format 2"):
        decode_manifest(text, "here")


def test_only_committed_names_count() -> None:
    names = ["step-00000002", "step-00000010-0a1b2c3d", "step-00000011.tmp-0a1b2c3d", "step-3", "step-00000012.corrupt"]
    assert newest_first([*names, "step-123456789"]) == ["step-123456789", "step-00000010-0a1b2c3d", "step-00000002"]
    assert step_of("step-123456789") == 123456789


def test_the_first_difference_is_named() -> None:
    assert first_difference({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}) == "a.c was 2, is 3"
    assert first_difference({"a": 1}, {}) == "a was 1, is None"
    assert first_difference({"a": {"b": None}}, {"a": {"b": None}}) == ""
