"""Accept a GPU cluster, fine-tune an open LLM for function calling on it, and prove that it got better."""

__version__ = "0.1.0"
