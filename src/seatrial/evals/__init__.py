"""Did the model get better at calling functions? Generation, scoring, and the numbers with their intervals."""
