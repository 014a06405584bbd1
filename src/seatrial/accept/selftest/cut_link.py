"""Four nodes in network namespaces, one of which loses its link: run as ``unshare -rn python -m`` this, prints facts.

Every node has a virtual cable to a bridge, as to a switch. When some rounds have been played, one cable is cut.
"""

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from seatrial.accept.blame.plan import tournament
from seatrial.accept.cluster import member
from seatrial.accept.cluster.board import Board
from seatrial.accept.cluster.conductor import RankCluster

NODES, CUT = 4, 2
PORT = 29_777
ADDRESS = "10.77.0.254"


def main() -> None:
    """Print what nodes left unanswered, as ``node count`` lines."""
    _ip("link", "set", "lo", "up")
    _ip("link", "add", "switch", "type", "bridge")
    _ip("addr", "add", f"{ADDRESS}/24", "dev", "switch")
    _ip("link", "set", "switch", "up")
    board = Board.at(ADDRESS, PORT, host=True, prefix="cut")
    with ExitStack() as stack, Path(sys.argv[1]).open("ab") as log:
        for node in range(NODES):
            stack.enter_context(_node(node, log.fileno()))
        cluster = RankCluster(board, range(NODES), 1, has_gpus=False, bout_seconds=30.0, grace_seconds=2.0)
        rounds = tournament(range(NODES))
        cluster.play(0, rounds[0], 3)  # starting up takes a while, and is no fault
        assert not cluster.unanswered and not cluster.errors, (cluster.unanswered, cluster.errors)
        cluster.bout_seconds = 3.0
        _ip("link", "set", f"port{CUT}", "down")
        for turn, round_ in enumerate(rounds, start=1):
            cluster.play(turn, round_, 3)
        for node, count in cluster.unanswered.items():
            sys.stdout.write(f"{node} {count}\n")


@contextmanager
def _node(node: int, log: int) -> Iterator[None]:
    """A namespace with one cable, and a rank in it."""
    holder = subprocess.Popen(["unshare", "--net", "sleep", "600"])
    try:
        while Path(f"/proc/{holder.pid}/ns/net").readlink() == Path("/proc/self/ns/net").readlink():
            pass
        inside = ["nsenter", "--target", str(holder.pid), "--net"]
        _ip("link", "add", f"port{node}", "type", "veth", "peer", "name", "eth0", "netns", str(holder.pid))
        _ip("link", "set", f"port{node}", "master", "switch", "up")
        _ip("addr", "add", f"10.77.0.{node + 1}/24", "dev", "eth0", inside=inside)
        for name in ("lo", "eth0"):
            _ip("link", "set", name, "up", inside=inside)
        seat = member.Seat(
            address=ADDRESS, port=PORT, prefix="cut", node=node, local=0, backend="gloo", interface="eth0"
        )
        rank = subprocess.Popen([*inside, *member.argv(seat)], stdout=log, stderr=log)
        try:
            yield
        finally:
            rank.kill()
            rank.wait()
    finally:
        holder.kill()
        holder.wait()


def _ip(*words: str, inside: Sequence[str] = ()) -> None:
    subprocess.run([*inside, "ip", *words], check=True)


if __name__ == "__main__":
    main()
