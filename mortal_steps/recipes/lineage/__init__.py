"""Where a model comes from.

code       the repository of the user's code, as it was
origin     inputs.json: what a stage began with
ancestors  a run, a product or a model in use, and what it has taken
of_runs    what a run has taken
ancestry   a model, what it was made of, what that was made of, down to datasets
naming     the names that people have for a model
checking   whether all of that is still what it was
"""
