"""A run as one page: read the files it left, draw, render. Nothing that trains or evaluates knows of this."""
