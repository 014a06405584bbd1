"""Acceptance of a machine: checks, the limits they are judged by, and the runner that puts the questions."""
