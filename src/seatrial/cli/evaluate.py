"""seatrial eval"""


def evaluate() -> None:
    """Score tool calls on held-out conversations."""
