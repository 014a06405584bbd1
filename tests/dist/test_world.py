"""Where ranks meet: in a store that the first of them hosts, whatever becomes of what started them."""

import socket
import subprocess
import sys

from seatrial.dist.world import _own_address


def test_ranks_need_their_launcher_only_to_meet() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.dist.meeting"], capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]


def test_a_rank_on_the_host_that_all_know_goes_by_its_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert _own_address("localhost", server.getsockname()[1]) == "localhost"
