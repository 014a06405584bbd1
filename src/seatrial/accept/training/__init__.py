"""seatrial's own training step as a test of the machine: its bits, its losses, its rate alone and together."""
