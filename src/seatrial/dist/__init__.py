"""Several processes as one: the world, how the model lies in it, what is reduced, and what survives a failure."""
