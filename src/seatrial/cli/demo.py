"""seatrial demo"""


def demo() -> None:
    """The whole voyage on this machine, in minutes."""
