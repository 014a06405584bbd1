"""Breaks a real training on purpose, in every way of a catalogue, and proves that it comes to the same end.

The product holds no hook for it: :mod:`saboteur` is the ranks' entry instead of ``python -m seatrial``, wraps one
moment of one process, and then runs the ordinary command line. :mod:`trial` starts and restarts a training as a
scheduler does, :mod:`judge` concludes from what the run directory holds afterwards.
"""
