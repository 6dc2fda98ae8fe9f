"""The kinds of stages, a file each.

sampled     what those have in common that sample with a model
sample      completions of every problem, scored, as a dataset
evaluate    scores on held-out problems
function    a function of the user's that fills a folder
"""
