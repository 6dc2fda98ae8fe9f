"""Datasets become problems, and each step's batch a pure function of them. Imports no torch.

sources         rows of a dataset, wherever it lies
rows            each row as a `Problem`
held_out        the problems that are held out, and what is left to train on
problems        all problems of a run, the batch of a step
values          what a row may hold
problem_files   problems on disk, read one by one; the dataset's fingerprint
"""
