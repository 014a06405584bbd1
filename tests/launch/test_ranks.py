"""One exit code for all ranks of a node."""

import pytest

from seatrial.launch.ranks import code_of


@pytest.mark.parametrize(
    ("codes", "code"),
    [((75, 75), 75), ((1, -9), 70), ((70, 76), 76), ((-15, 75), 75), ((2,), 2), ((75, 2), 2), ((78, 70), 78)],
)
def test_the_most_telling_code_is_that_of_the_node(codes: tuple[int, ...], code: int) -> None:
    assert code_of(codes) == code
