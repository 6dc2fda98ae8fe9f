"""Datasets become problems, and each step's batch a pure function of them. Imports no torch.

sources    rows of a dataset, wherever it lies
problems   rows as `Problem`s, the batch of a step, the dataset's fingerprint
"""

from mortal_steps.data.problems import dataset_fingerprint, get_batch, load_problems

__all__ = ["dataset_fingerprint", "get_batch", "load_problems"]
