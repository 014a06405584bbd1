"""A function-calling corpus and pre-training documents, made from a seed, without any download."""

from seatrial.data.synthetic.corpus import Mix, Split, corpus
from seatrial.data.synthetic.files import write_corpus
from seatrial.data.synthetic.texts import texts

__all__ = ["Mix", "Split", "corpus", "texts", "write_corpus"]
