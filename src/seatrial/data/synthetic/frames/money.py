"""Tools for money."""

TABLE = ""
