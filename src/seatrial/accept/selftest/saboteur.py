"""A rank that misbehaves: ``python -m seatrial.accept.selftest.saboteur SEAT``, with the sabotage in the environment.

``SEATRIAL_SABOTAGE`` is a list in JSON: ``node``, and ``delay_seconds`` before each exchange or ``flip``, a bit of its
result.
"""

import json
import os
import time
from typing import TYPE_CHECKING

from seatrial.accept.cluster import member

if TYPE_CHECKING:
    import torch


def main() -> None:
    planned = json.loads(os.environ["SEATRIAL_SABOTAGE"])
    honest = member.exchange

    def exchange(seat: member.Seat, whole_N: "torch.Tensor") -> None:
        import torch

        ours = [sabotage for sabotage in planned if sabotage["node"] == seat.node]
        time.sleep(sum(sabotage.get("delay_seconds", 0.0) for sabotage in ours))
        honest(seat, whole_N)
        for sabotage in ours:
            if "flip" in sabotage:
                whole_N.view(torch.int32)[sabotage["flip"]] ^= 1

    member.exchange = exchange
    member.main()


if __name__ == "__main__":
    main()
