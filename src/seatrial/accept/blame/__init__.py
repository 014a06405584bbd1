"""Who is the culprit: nodes play each other in turn, and the scores are decoded into node, GPU, port, cable or path."""
