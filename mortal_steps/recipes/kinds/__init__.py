"""The kinds of stages, a file each; `STAGES` (recipes/table.py) has their names.

train       a run
sample      completions of every problem, scored, as a dataset
evaluate    scores on held-out problems
function    a function of the user's that fills a folder
promote     the gate before a model is put to use

configured  what those have in common whose table is a run's configuration
sampled     and those of them that sample with a model
"""
