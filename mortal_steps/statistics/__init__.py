"""How far the scores of an evaluation can be trusted: numbers in, numbers out.

intervals    95 % intervals of a mean score over problems
paired       how much better one model is than another on the same problems
passing      pass@k

A problem counts once, however many completions it has: completions of one problem are alike, so
that an interval over completions promises more than it holds.
"""
