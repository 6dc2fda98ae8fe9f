"""A gate before a model is put to use: compare it with the one in use, then decide.

candidate    the model of a finished run, as files for the registry
judging      what one model scores on held-out problems, once for all
comparison   the candidate beside the incumbent: numbers, a verdict, a page
gate         all of it in its order: `Gate`
"""
