"""From any tool-calling format to packs of tokens, with what is trained on marked token by token."""
