"""Reward models: models with a sequence-classification head that score completions.

- `scoring.py`: the model and its numbers, which are TRL's
- `process.py`: the process that it scores in, from the outside
"""
