"""seatrial report"""


def report() -> None:
    """One self-contained page about a run."""
