"""seatrial train"""


def train() -> None:
    """Fine-tune."""
