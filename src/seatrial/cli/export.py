"""seatrial export"""


def export() -> None:
    """Write the adapter in PEFT form, or the merged model."""
