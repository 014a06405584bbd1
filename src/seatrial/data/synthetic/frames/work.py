"""Tools for work."""

TABLE = ""
