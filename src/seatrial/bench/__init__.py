"""Measuring how fast a machine does what seatrial does."""
