"""Tools for leisure."""

TABLE = ""
