"""What is staged is what is written: no byte is left out and none is shared."""

import json

import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load

from seatrial.dist.checkpoint.layout import SMALLEST_FILE_BYTES, Box, _files_of, bins, header
from seatrial.dist.checkpoint.work import THREADS

DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.uint8, torch.float8_e4m3fn]


@st.composite
def boxes(draw: st.DrawFn) -> list[Box]:
    shapes = draw(st.lists(st.lists(st.integers(1, 5), max_size=3), min_size=1, max_size=12))
    return [
        Box(f"t{number}", (0,) * len(shape), tuple(shape), draw(st.sampled_from(DTYPES)), f"t{number}")
        for number, shape in enumerate(shapes)
    ]


@given(boxes())
def test_every_box_has_its_own_aligned_bytes(held: list[Box]) -> None:
    (file,) = _files_of(3, held, None)
    taken = sorted(zip(file.begins, file.boxes, strict=True))
    assert sorted(box.tensor for _, box in taken) == sorted(box.tensor for box in held)
    at = file.write.begin
    for begin, box in taken:
        assert begin == at
        assert begin % box.dtype.itemsize == 0
        at += box.size
    assert at == file.write.end


@given(boxes())
def test_the_safetensors_library_reads_the_file(held: list[Box]) -> None:
    (file,) = _files_of(0, held, None)
    content = bytes(number % 251 for number in range(file.write.end))
    read = load(file.write.header + content)
    assert read.keys() == {box.tensor for box in held}
    for piece, box in zip(file.pieces, file.boxes, strict=True):
        begin = piece.begin - len(file.write.header)
        expected = torch.frombuffer(bytearray(content[begin : begin + box.size]), dtype=box.dtype).view(box.shape)
        assert read[box.tensor].dtype == box.dtype
        assert torch.equal(read[box.tensor].reshape(-1).view(torch.uint8), expected.reshape(-1).view(torch.uint8))


def test_much_is_split_over_the_threads_and_little_is_not() -> None:
    large = [Box(f"t{i}", (0,), (SMALLEST_FILE_BYTES // 2,), torch.uint8, f"t{i}") for i in range(24)]
    split = bins(large)
    assert len(split) == THREADS
    assert {sum(box.size for box in each) for each in split} == {SMALLEST_FILE_BYTES * 3}
    assert len(bins(large[:3])) == 1


def test_the_header_says_where_a_piece_lies() -> None:
    text = header([Box("a", (4, 0), (2, 3), torch.float32, "a")], with_offsets=True)
    metadata = json.loads(text[8:])["__metadata__"]
    assert json.loads(metadata["DCP_SHARDING_INFO"]) == {"a": {"saved_offsets": [4, 0]}}
