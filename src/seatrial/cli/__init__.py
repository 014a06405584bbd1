"""One small file per verb. Nothing heavy is imported until a verb runs."""
