"""What can be found wrong with a job before a GPU is held for it: all of it at once, each with its fix."""
