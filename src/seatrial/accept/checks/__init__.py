"""The checks, a file per part of the machine: what is measured, and the pure function that judges it."""
