"""What bits depend on, and what they do not."""

import json

import torch

from seatrial.dist.plan import Layout
from seatrial.dist.world import World
from seatrial.train.exact import Exactness
from seatrial.train.fingerprint import bits_fingerprint

WHOLE, PIECES = Layout("replicate", 1, "none"), Layout("shard", 4, "none")
ANY, SAME, NONE = Exactness(True, True, ""), Exactness(True, False, ""), Exactness(False, False, "")


def world(size: int) -> World:
    return World(0, size, torch.device("cpu"))


def test_another_number_of_processes_is_another_matter_only_where_bits_depend_on_it() -> None:
    assert bits_fingerprint(world(1), WHOLE, ANY) == bits_fingerprint(world(4), PIECES, ANY)
    for exactness in (SAME, NONE):
        assert bits_fingerprint(world(1), WHOLE, exactness) != bits_fingerprint(world(4), WHOLE, exactness)
        assert bits_fingerprint(world(4), WHOLE, exactness) != bits_fingerprint(world(4), PIECES, exactness)


def test_what_is_computed_again_and_threads_are_in_it() -> None:
    kept = bits_fingerprint(world(2), WHOLE, ANY)
    assert bits_fingerprint(world(2), Layout("replicate", 1, "selective"), ANY) != kept
    threads = torch.get_num_threads()
    torch.set_num_threads(threads + 1)
    try:
        assert bits_fingerprint(world(2), WHOLE, ANY) != kept
    finally:
        torch.set_num_threads(threads)
    assert json.loads(json.dumps(kept)) == kept
    assert "torch" in kept["packages"]
