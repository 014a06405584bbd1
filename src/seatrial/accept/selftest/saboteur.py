"""A rank that misbehaves: ``python -m seatrial.accept.selftest.saboteur SEAT``, with the sabotage in the environment.

``SEATRIAL_SABOTAGE`` is JSON: ``node``, and ``delay_seconds`` before each exchange or ``flip``, a bit of its result.
"""

import json
import os
import time
from typing import TYPE_CHECKING

from seatrial.accept.cluster import member

if TYPE_CHECKING:
    import torch


def main() -> None:
    sabotage = json.loads(os.environ["SEATRIAL_SABOTAGE"])
    honest = member.exchange

    def exchange(seat: member.Seat, whole_N: "torch.Tensor") -> None:
        import torch

        ours = seat.node == sabotage["node"]
        if ours and "delay_seconds" in sabotage:
            time.sleep(sabotage["delay_seconds"])
        honest(seat, whole_N)
        if ours and "flip" in sabotage:
            whole_N.view(torch.int32)[sabotage["flip"]] ^= 1

    member.exchange = exchange
    member.main()


if __name__ == "__main__":
    main()
