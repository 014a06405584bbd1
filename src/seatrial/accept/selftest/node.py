"""One of several nodes that are processes of this machine: ``python -m seatrial.accept.selftest.node JSON``."""

import json
import sys
import time
from pathlib import Path

from seatrial.accept import catalogue, runner
from seatrial.accept.cluster.place import Place
from seatrial.accept.cluster.run import Task, run_node


def main() -> None:
    """``clock_seconds``: how far this node's clock is ahead."""
    given = json.loads(sys.argv[1])
    real, ahead = time.time, given["clock_seconds"]
    if ahead:
        time.time = lambda: real() + ahead
    place = Place(
        node=given["node"],
        nodes=given["nodes"],
        leads=True,
        address="127.0.0.1",
        port=given["port"],
        hosts_store=given["node"] == 0,
    )
    task = Task(
        out=Path(given["out"]),
        checks=catalogue.choose(["host.cpu", "host.system", "host.same_bits"]),
        budget_seconds=given["budget_seconds"],
        settings=runner.Settings(),
        silent_seconds=5.0,
        appear_seconds=60.0,
    )
    run_node(place, task, lambda result: None)


if __name__ == "__main__":
    main()
