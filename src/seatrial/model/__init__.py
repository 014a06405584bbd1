"""The model as it is trained: Hugging Face modules with packed attention and, when asked for, low-rank adapters."""
