"""A function-calling corpus and pre-training documents, made from a seed, without any download."""

from seatrial.data.synthetic.corpus import Mix, Split, corpus

__all__ = ["Mix", "Split", "corpus"]
