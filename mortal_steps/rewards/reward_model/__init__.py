"""Reward models: models with a sequence-classification head that score completions."""
